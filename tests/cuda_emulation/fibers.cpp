#include "cuda_emulation/fibers.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "compact/core/error.h"
#include "compact/cuda/check.h"
#include "cuda_emulation/block_memory.h"
#include "cuda_emulation/fiber_order.h"
#include "cuda_emulation/sanitizer.h"

namespace compact::cuda::emulation {

uint3 thread_index{}, block_index{};
dim3 block_size, grid_size;

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

/// The block that is running.
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
};

Block block;
std::mt19937 order;
std::uint32_t order_seed = 0;

/// Stacks of all fibers, touched only as far as they are used.
unsigned char* stack_of(std::size_t fiber) {
  static unsigned char* const memory = [] {
    const std::size_t bytes = kStackBytes * kMostThreads;
    void* p =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) bug("no memory for the stacks of the emulation");
    for (std::size_t i = 0; i < kMostThreads; ++i)
      mprotect(static_cast<unsigned char*>(p) + i * kStackBytes, kPage, PROT_NONE);
    return static_cast<unsigned char*>(p);
  }();
  return memory + fiber * kStackBytes + kPage;
}
constexpr std::size_t kStackUse = kStackBytes - kPage;
std::size_t top_of(std::size_t fiber) { return kStackUse - fiber % kTops * kBetweenTops; }

// ---- switching, with what the sanitizer must hear of it -----------------------------------------------
#ifdef __SANITIZE_ADDRESS__
const void* host_stack = nullptr;
std::size_t host_stack_bytes = 0;

void leave(void** fake, int to) {
  const bool host = to < 0;
  __sanitizer_start_switch_fiber(fake, host ? host_stack : stack_of(static_cast<std::size_t>(to)),
                                 host ? host_stack_bytes : kStackUse);
}
void arrive(void* fake) {
  const void* from = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake, &from, &bytes);
  if (block.left == &block.scheduler) {
    host_stack = from;
    host_stack_bytes = bytes;
  }
}
#else
void leave(void**, int) {}
void arrive(void*) {}
#endif

/// Goes on with fiber `to` (-1: the scheduler); what is left is kept in `from`.
void jump(context::fcontext_t& from, int to) {
  block.left = &from;
  context::fcontext_t target = block.scheduler;
  block.current = to;
  if (to >= 0) {
    const Fiber& fiber = block.fibers[static_cast<std::size_t>(to)];
    thread_index = fiber.index;
    target = fiber.at;
  }
  void* fake = nullptr;
  leave(&from == &block.ended ? nullptr : &fake, to);
  const context::transfer_t came = context::jump_fcontext(target, nullptr);
  arrive(fake);
  *block.left = came.fctx;
}

/// The fiber that goes on next, taken out of the ready ones; -1 if none can.
int take_next() {
  std::vector<int>& ready = block.ready;
  if (ready.empty()) {
    if (block.next_turn.empty()) return -1;
    ready.swap(block.next_turn);
    std::reverse(ready.begin(), ready.end());
  }
  if (block.choice == Choice::Random) std::swap(ready[order() % ready.size()], ready.back());
  const int next = ready.back();
  ready.pop_back();
  return next;
}

void enter_fiber(context::transfer_t from) {
  arrive(nullptr);
  *block.left = from.fctx;
  (*block.thread)();
  check_copies();
  ++block.done;
  jump(block.ended, take_next());  // never comes back
}

void start_fibers() {
  const std::size_t threads = static_cast<std::size_t>(block.threads);
  for (std::size_t i = 0; i < threads; ++i) {
    Fiber& fiber = block.fibers[i];
    const unsigned n = static_cast<unsigned>(i);
    fiber = {};
    fiber.index = {n % block_size.x, n / block_size.x % block_size.y, n / (block_size.x * block_size.y)};
    fiber.at = context::make_fcontext(stack_of(i) + top_of(i), top_of(i), enter_fiber);
  }
  for (std::size_t w = 0; w < block.warps.size(); ++w) {
    block.warps[w].lanes = std::min(kLanes, block.threads - static_cast<int>(w) * kLanes);
    block.warps[w].meeting.waiting.clear();
  }
  block.done = 0;
  block.barrier.waiting.clear();
  block.next_turn.clear();
  block.ready.resize(threads);
  std::iota(block.ready.rbegin(), block.ready.rend(), 0);
}

/// Warps in random order, and the lanes of each.
void shuffle_ready() {
  std::vector<int> warps(block.warps.size());
  std::iota(warps.begin(), warps.end(), 0);
  std::shuffle(warps.begin(), warps.end(), order);
  block.ready.clear();
  for (const int w : warps) {
    const auto first = static_cast<std::ptrdiff_t>(block.ready.size());
    for (int i = 0; i < block.warps[static_cast<std::size_t>(w)].lanes; ++i)
      block.ready.push_back(w * kLanes + i);
    std::shuffle(block.ready.begin() + first, block.ready.end(), order);
  }
}

void run_block(std::uint64_t number) {
  start_fibers();
  block.choice = Choice::InTurn;
  if (order_seed != 0) {
    shuffle_ready();
    block.choice = (order_seed + number) % 2 == 0 ? Choice::Random : Choice::Ahead;
  }
  jump(block.scheduler, take_next());
  if (block.done == block.threads) return;
  fail(std::to_string(block.threads - block.done) + " of " + std::to_string(block.threads) +
       " threads wait at a barrier or shuffle that the others do not reach");
  for (std::size_t i = 0; i < block.fibers.size(); ++i) allow(stack_of(i), kStackUse);  // frames left behind
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
  meeting.waiting.push_back(block.current);
  if (static_cast<int>(meeting.waiting.size()) == count) {
    last();
    if (block.choice != Choice::InTurn) std::shuffle(meeting.waiting.begin(), meeting.waiting.end(), order);
    std::vector<int>& released = block.choice == Choice::InTurn ? block.next_turn : block.ready;
    released.insert(released.end(), meeting.waiting.begin(), meeting.waiting.end());
    meeting.waiting.clear();
  }
  const int self = block.current, next = take_next();
  if (next != self) jump(block.fibers[static_cast<std::size_t>(self)].at, next);
}

Warp& own_warp() { return block.warps[static_cast<std::size_t>(block.current / kLanes)]; }

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
  grid_size = grid;
  block_size = size;
  block.thread = &thread;
  block.threads = static_cast<int>(size.x * size.y * size.z);
  block.fibers.resize(static_cast<std::size_t>(block.threads));
  block.warps.resize((block.fibers.size() + kLanes - 1) / kLanes);
  block.failure.clear();
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  // Shuffled, blocks follow each other in steps that share no factor with their number.
  std::uint64_t step = 1, at = 0;
  if (order_seed != 0) {
    at = order() % blocks;
    do step = order() % blocks + 1;
    while (std::gcd(step, blocks) != 1);
  }
  for (std::uint64_t n = 0; n < blocks; ++n, at = (at + step) % blocks) {
    block_index = {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                   static_cast<unsigned>(at / grid.x / grid.y)};
    start_block_memory(shared_bytes);
    run_block(n);
    check_block_memory();
    if (!block.failure.empty())
      run_error("{}: block ({}, {}, {}){}", op, block_index.x, block_index.y, block_index.z, block.failure);
  }
}

void fail(const std::string& what) {
  if (!block.failure.empty()) return;
  if (block.current >= 0)
    block.failure = fmt::format(", thread ({}, {}, {})", thread_index.x, thread_index.y, thread_index.z);
  block.failure += ": " + what;
}

void block_barrier(Site site) {
  meet(block.barrier, block.threads, site, [] {});
}

void warp_barrier(unsigned mask, Site site) {
  if (mask != kAllLanes) fail("a mask that leaves lanes of the warp out");
  Warp& warp = own_warp();
  meet(warp.meeting, warp.lanes, site, [] {});
}

int lane() { return block.current % kLanes; }
int thread_number() { return block.current; }

const unsigned char* exchange(const void* value, std::size_t bytes, Site site,
                              void (*combine)(unsigned char* places)) {
  Warp& warp = own_warp();
  auto& places = warp.places[block.fibers[static_cast<std::size_t>(block.current)].exchanges++ % 2];
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
  cuda::emulation::order.seed(seed);
}
bool is_emulated() { return true; }

}  // namespace compact::testing
