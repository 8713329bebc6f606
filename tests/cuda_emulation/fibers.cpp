#include "cuda_emulation/fibers.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <boost/context/detail/fcontext.hpp>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <vector>

#include "compact/core/error.h"
#include "compact/cuda/check.h"
#include "cuda_emulation/block_memory.h"
#include "cuda_emulation/fiber_order.h"
#include "cuda_emulation/sanitizer.h"

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim, gridDim;

namespace compact::cuda::emulation {

namespace {

namespace context = boost::context::detail;

constexpr int kMostThreads = 1024, kLanes = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
// A page that cannot be touched lies below every stack. Distances that are no power of two, and tops at
// several places in their page, keep the stacks of a block from competing for the same lines of the caches.
constexpr std::size_t kPage = 4096, kStackBytes = (std::size_t{kSanitized ? 512 : 256} << 10) + kPage;
constexpr std::size_t kTops = 8, kBetweenTops = 448;

struct Fiber {
  context::fcontext_t at = nullptr;
  uint3 index{};
  int exchanges = 0;
  const void* fake_stack = nullptr;  // of the sanitizer
};

/// Threads that wait for each other.
struct Meeting {
  std::vector<int> waiting;
  Site site;
};

struct Warp {
  int lanes = 0;
  Meeting meeting;
  alignas(64) unsigned char places[2][kLanes][kExchangeBytes];  // in turns: a lane may be one exchange ahead
};

/// Which of the fibers that can go on does.
enum class Choice {
  InTurn,  // all once, in the order of their numbers as far as possible
  Random,  // any
  Ahead,   // the one that became ready last: a warp runs as far as it can before another one starts
};

/// Stacks of the fibers of a block, touched only as far as they are used.
unsigned char* map_stacks() {
  void* p = mmap(nullptr, kStackBytes * kMostThreads, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) bug("no memory for the stacks of the emulation");
  for (std::size_t i = 0; i < kMostThreads; ++i)
    mprotect(static_cast<unsigned char*>(p) + i * kStackBytes, kPage, PROT_NONE);
  return static_cast<unsigned char*>(p);
}

/// The block that a thread of the host runs.
struct Block {
  const std::function<void()>* thread = nullptr;
  int threads = 0, done = 0;
  int current = -1;  // number of the running fiber, -1: none
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Meeting barrier;
  std::vector<int> ready, next_turn;  // ready: the last one goes first
  Choice choice = Choice::InTurn;
  context::fcontext_t scheduler = nullptr, ended = nullptr;
  context::fcontext_t* left = nullptr;  // where to keep the context that was switched away from
  std::string failure;
  std::mt19937 order;
  int order_of = 0;  // number of the order that `order` has begun
  unsigned char* const stacks = map_stacks();
  const void* host_stack = nullptr;  // for the sanitizer
  std::size_t host_stack_bytes = 0;
};

/// Those that no thread uses now: a thread that ends leaves its own to later ones.
std::mutex unused_mutex;
std::vector<std::unique_ptr<Block>> unused;

class BlockOfThread {
 public:
  BlockOfThread() {
    const std::lock_guard lock(unused_mutex);
    if (unused.empty()) {
      block_ = std::make_unique<Block>();
    } else {
      block_ = std::move(unused.back());
      unused.pop_back();
    }
  }
  ~BlockOfThread() {
    const std::lock_guard lock(unused_mutex);
    unused.push_back(std::move(block_));
  }
  BlockOfThread(const BlockOfThread&) = delete;
  BlockOfThread& operator=(const BlockOfThread&) = delete;
  Block& operator*() const { return *block_; }

 private:
  std::unique_ptr<Block> block_;
};

constinit thread_local Block* running = nullptr;
std::atomic<std::uint32_t> order_seed = 0;
std::atomic<int> orders = 0;  // that were set

Block& start_running() {
  static thread_local const BlockOfThread own;
  running = &*own;
  if (running->order_of != orders) {
    running->order_of = orders;
    running->order.seed(order_seed);
  }
  return *running;
}

unsigned char* stack_of(std::size_t fiber) { return running->stacks + fiber * kStackBytes + kPage; }
constexpr std::size_t kStackUse = kStackBytes - kPage;
std::size_t top_of(std::size_t fiber) { return kStackUse - fiber % kTops * kBetweenTops; }

// ---- switching, with what the sanitizer must hear of it -----------------------------------------------
#ifdef __SANITIZE_ADDRESS__
void leave(void** fake, int to) {
  const bool host = to < 0;
  __sanitizer_start_switch_fiber(fake, host ? running->host_stack : stack_of(static_cast<std::size_t>(to)),
                                 host ? running->host_stack_bytes : kStackUse);
}
void arrive(void* fake) {
  const void* from = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake, &from, &bytes);
  if (running->left == &running->scheduler) {
    running->host_stack = from;
    running->host_stack_bytes = bytes;
  }
}
#else
void leave(void**, int) {}
void arrive(void*) {}
#endif

/// Goes on with fiber `to` (-1: the scheduler); what is left is kept in `from`.
void jump(context::fcontext_t& from, int to) {
  running->left = &from;
  context::fcontext_t target = running->scheduler;
  running->current = to;
  if (to >= 0) {
    const Fiber& fiber = running->fibers[static_cast<std::size_t>(to)];
    threadIdx = fiber.index;
    target = fiber.at;
  }
  void* fake = nullptr;
  leave(&from == &running->ended ? nullptr : &fake, to);
  const context::transfer_t came = context::jump_fcontext(target, nullptr);
  arrive(fake);
  *running->left = came.fctx;
}

/// The fiber that goes on next, taken out of the ready ones; -1 if none can.
int take_next() {
  std::vector<int>& ready = running->ready;
  if (ready.empty()) {
    if (running->next_turn.empty()) return -1;
    ready.swap(running->next_turn);
    std::reverse(ready.begin(), ready.end());
  }
  if (running->choice == Choice::Random) std::swap(ready[running->order() % ready.size()], ready.back());
  const int next = ready.back();
  ready.pop_back();
  return next;
}

void enter_fiber(context::transfer_t from) {
  arrive(nullptr);
  *running->left = from.fctx;
  (*running->thread)();
  check_copies();
  ++running->done;
  jump(running->ended, take_next());  // never comes back
}

void start_fibers() {
  const std::size_t threads = static_cast<std::size_t>(running->threads);
  for (std::size_t i = 0; i < threads; ++i) {
    Fiber& fiber = running->fibers[i];
    const unsigned n = static_cast<unsigned>(i);
    fiber = {};
    fiber.index = {n % blockDim.x, n / blockDim.x % blockDim.y, n / (blockDim.x * blockDim.y)};
    fiber.at = context::make_fcontext(stack_of(i) + top_of(i), top_of(i), enter_fiber);
  }
  for (std::size_t w = 0; w < running->warps.size(); ++w) {
    running->warps[w].lanes = std::min(kLanes, running->threads - static_cast<int>(w) * kLanes);
    running->warps[w].meeting.waiting.clear();
  }
  running->done = 0;
  running->barrier.waiting.clear();
  running->next_turn.clear();
  running->ready.resize(threads);
  std::iota(running->ready.rbegin(), running->ready.rend(), 0);
}

/// Warps in random order, and the lanes of each.
void shuffle_ready() {
  std::vector<int> warps(running->warps.size());
  std::iota(warps.begin(), warps.end(), 0);
  std::shuffle(warps.begin(), warps.end(), running->order);
  running->ready.clear();
  for (const int w : warps) {
    const auto first = static_cast<std::ptrdiff_t>(running->ready.size());
    for (int i = 0; i < running->warps[static_cast<std::size_t>(w)].lanes; ++i)
      running->ready.push_back(w * kLanes + i);
    std::shuffle(running->ready.begin() + first, running->ready.end(), running->order);
  }
}

void run_block(std::uint64_t number) {
  start_fibers();
  running->choice = Choice::InTurn;
  if (order_seed != 0) {
    shuffle_ready();
    running->choice = (order_seed + number) % 2 == 0 ? Choice::Random : Choice::Ahead;
  }
  jump(running->scheduler, take_next());
  if (running->done == running->threads) return;
  fail(std::to_string(running->threads - running->done) + " of " + std::to_string(running->threads) +
       " threads wait at a barrier or shuffle that the others do not reach");
  for (std::size_t i = 0; i < running->fibers.size(); ++i)
    allow(stack_of(i), kStackUse);  // frames left behind
}

std::string line_of(const Site& site) {
  const std::string_view path = site.file_name();
  return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(site.line());
}

/// Waits for the `count` threads of a meeting; `last` is called by the one that comes last.
template <typename Last>
void meet(Meeting& meeting, int count, const Site& site, Last last) {
  if (meeting.waiting.empty())
    meeting.site = site;
  else if (meeting.site.line() != site.line() || meeting.site.column() != site.column())
    fail("threads wait for each other at different lines, " + line_of(meeting.site) + " and " +
         line_of(site));
  meeting.waiting.push_back(running->current);
  if (static_cast<int>(meeting.waiting.size()) == count) {
    last();
    if (running->choice != Choice::InTurn)
      std::shuffle(meeting.waiting.begin(), meeting.waiting.end(), running->order);
    std::vector<int>& released = running->choice == Choice::InTurn ? running->next_turn : running->ready;
    released.insert(released.end(), meeting.waiting.begin(), meeting.waiting.end());
    meeting.waiting.clear();
  }
  const int self = running->current, next = take_next();
  if (next != self) jump(running->fibers[static_cast<std::size_t>(self)].at, next);
}

Warp& own_warp() { return running->warps[static_cast<std::size_t>(running->current / kLanes)]; }

}  // namespace

void check_launch(std::string_view op, dim3 grid, dim3 size, std::int64_t shared_bytes) {
  const std::int64_t threads = std::int64_t{size.x} * size.y * size.z;
  const auto refuse = [&](const char* what) { run_error("{}: {}", op, what); };
  if (threads < 1 || threads > kMostThreads || size.z > 64) refuse("a block has 1 to 1024 threads");
  if (grid.x < 1 || grid.y < 1 || grid.z < 1) refuse("a grid without blocks");
  if (grid.x > 0x7FFFFFFFu || grid.y > 65535 || grid.z > 65535) refuse("a grid that is too large");
  if (shared_bytes < 0 || shared_bytes > 99 * 1024)
    refuse("more shared memory than a block has on cards of compute capability 8.6 and 8.9");
  check(cudaGetLastError(), op);  // as after a launch on a card: an error that nobody has taken shows here
}

void run_kernel(std::string_view op, dim3 grid, dim3 size, std::int64_t shared_bytes,
                const std::function<void()>& thread) {
  Block& block = start_running();
  gridDim = grid;
  blockDim = size;
  block.thread = &thread;
  running->threads = static_cast<int>(size.x * size.y * size.z);
  running->fibers.resize(static_cast<std::size_t>(running->threads));
  running->warps.resize((running->fibers.size() + kLanes - 1) / kLanes);
  running->failure.clear();
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  // Shuffled, blocks follow each other in steps that share no factor with their number.
  std::uint64_t step = 1, at = 0;
  if (order_seed != 0) {
    at = block.order() % blocks;
    do step = block.order() % blocks + 1;
    while (std::gcd(step, blocks) != 1);
  }
  for (std::uint64_t n = 0; n < blocks; ++n, at = (at + step) % blocks) {
    blockIdx = {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                static_cast<unsigned>(at / grid.x / grid.y)};
    start_block_memory(shared_bytes);
    run_block(n);
    check_block_memory();
    if (!running->failure.empty())
      run_error("{}: block ({}, {}, {}){}", op, blockIdx.x, blockIdx.y, blockIdx.z, running->failure);
  }
}

void fail(const std::string& what) {
  if (!running->failure.empty()) return;
  if (running->current >= 0)
    running->failure = fmt::format(", thread ({}, {}, {})", threadIdx.x, threadIdx.y, threadIdx.z);
  running->failure += ": " + what;
}

void block_barrier(Site site) {
  meet(running->barrier, running->threads, site, [] {});
}

void warp_barrier(unsigned mask, Site site) {
  if (mask != kAllLanes) fail("a mask that leaves lanes of the warp out");
  Warp& warp = own_warp();
  meet(warp.meeting, warp.lanes, site, [] {});
}

int lane() { return running->current % kLanes; }
int thread_number() { return running->current; }

const unsigned char* exchange(const void* value, std::size_t bytes, Site site,
                              void (*combine)(unsigned char* places)) {
  Warp& warp = own_warp();
  auto& places = warp.places[running->fibers[static_cast<std::size_t>(running->current)].exchanges++ % 2];
  std::memcpy(places[lane()], value, bytes);
  meet(warp.meeting, warp.lanes, site, [&] {
    if (combine != nullptr) combine(&places[0][0]);
  });
  return &places[0][0];
}

void check_lane(unsigned mask, int from) {
  if (mask != kAllLanes) fail("a mask that leaves lanes of the warp out");
  if (from < 0 || from >= own_warp().lanes) fail("a shuffle that reads a lane which is not there");
}

unsigned ballot(unsigned mask, bool predicate, Site site) {
  if (mask != kAllLanes) fail("a mask that leaves lanes of the warp out");
  const unsigned char* places = exchange(&predicate, sizeof(predicate), site);
  unsigned bits = 0;
  for (int i = 0; i < own_warp().lanes; ++i)
    bits |= static_cast<unsigned>(places[static_cast<std::size_t>(i) * kExchangeBytes] != 0) << i;
  return bits;
}

}  // namespace compact::cuda::emulation

namespace compact::testing {

void set_fiber_order(std::uint32_t seed) {
  cuda::emulation::order_seed = seed;
  ++cuda::emulation::orders;
}
bool is_emulated() { return true; }

}  // namespace compact::testing
