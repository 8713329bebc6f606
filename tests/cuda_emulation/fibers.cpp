#include "cuda_emulation/fibers.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <memory>
#include <numeric>
#include <random>
#include <unordered_map>
#include <vector>

#include "compact/core/error.h"
#include "cuda_emulation/fiber_order.h"

namespace compact::cuda::emulation {

uint3 thread_index{}, block_index{};
dim3 block_size, grid_size;

namespace {

namespace context = boost::context::detail;

constexpr std::size_t kStackBytes = std::size_t{256} << 10;
constexpr int kMostThreads = 1024, kLanes = 32;
constexpr unsigned char kPoison = 0xFF;  // NaN as a float of either size, and an index that is out of range
constexpr std::size_t kGuardBytes = 128;
constexpr unsigned char kGuard = 0xA5;

struct Fiber {
  context::fcontext_t at = nullptr;
  uint3 index{};
  int exchanges = 0;
  bool done = false;
};

struct Warp {
  int lanes = 0, arrived = 0;
  std::vector<int> waiting;
  unsigned char places[2][kLanes][kExchangeBytes];  // two in turns: a lane may be one exchange ahead
};

/// The block that is running.
struct Block {
  const std::function<void()>* thread = nullptr;
  int threads = 0, done = 0, current = 0;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<int> ready, at_barrier;
  context::fcontext_t scheduler = nullptr;
  std::vector<unsigned char> dynamic;
  std::unordered_map<void*, std::uint64_t> shared_of_block;  // the block that last declared it
  std::uint64_t serial = 0;
  std::string failure;
};

Block block;
std::mt19937 order;
bool shuffled = false;

/// Stacks of all fibers, touched only as far as they are used.
unsigned char* stacks() {
  static unsigned char* const memory = [] {
    void* p = mmap(nullptr, kStackBytes * kMostThreads, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) bug("no memory for the stacks of the emulation");
    return static_cast<unsigned char*>(p);
  }();
  return memory;
}

void enter_fiber(context::transfer_t from) {
  block.scheduler = from.fctx;
  (*block.thread)();
  Fiber& self = block.fibers[static_cast<std::size_t>(block.current)];
  self.done = true;
  ++block.done;
  context::jump_fcontext(block.scheduler, nullptr);  // never comes back
}

void to_scheduler() { block.scheduler = context::jump_fcontext(block.scheduler, nullptr).fctx; }

void resume(int i) {
  Fiber& fiber = block.fibers[static_cast<std::size_t>(i)];
  block.current = i;
  thread_index = fiber.index;
  fiber.at = context::jump_fcontext(fiber.at, nullptr).fctx;
}

void run_block() {
  const std::size_t threads = static_cast<std::size_t>(block.threads);
  ++block.serial;
  block.done = 0;
  block.at_barrier.clear();
  block.ready.resize(threads);
  std::iota(block.ready.begin(), block.ready.end(), 0);
  for (std::size_t i = 0; i < threads; ++i) {
    Fiber& fiber = block.fibers[i];
    const unsigned n = static_cast<unsigned>(i);
    fiber = {};
    fiber.index = {n % block_size.x, n / block_size.x % block_size.y, n / (block_size.x * block_size.y)};
    fiber.at = context::make_fcontext(stacks() + (i + 1) * kStackBytes, kStackBytes, enter_fiber);
  }
  for (std::size_t w = 0; w < block.warps.size(); ++w) {
    block.warps[w].lanes = std::min(kLanes, block.threads - static_cast<int>(w) * kLanes);
    block.warps[w].arrived = 0;
    block.warps[w].waiting.clear();
  }
  std::vector<int> turn;
  while (!block.ready.empty()) {
    turn.swap(block.ready);
    block.ready.clear();
    if (shuffled) std::shuffle(turn.begin(), turn.end(), order);
    for (const int i : turn) resume(i);
  }
  if (block.done != block.threads)
    fail(std::to_string(block.threads - block.done) + " of " + std::to_string(block.threads) +
         " threads wait at a barrier or shuffle that the others do not reach");
}

void check_guard(const std::vector<unsigned char>& memory, std::int64_t bytes) {
  for (std::size_t i = 0; i < kGuardBytes; ++i)
    if (memory[i] != kGuard || memory[kGuardBytes + static_cast<std::size_t>(bytes) + i] != kGuard)
      return fail("a write outside of the dynamic shared memory");
}

}  // namespace

void run_kernel(std::string_view op, dim3 grid, dim3 size, std::int64_t shared_bytes,
                const std::function<void()>& thread) {
  const std::int64_t threads = std::int64_t{size.x} * size.y * size.z;
  const auto refuse = [&](const char* what) { run_error("{}: {}", op, what); };
  if (threads < 1 || threads > kMostThreads) refuse("a block has 1 to 1024 threads");
  if (grid.x < 1 || grid.y < 1 || grid.z < 1) refuse("a grid without blocks");
  if (grid.x > 0x7FFFFFFFu || grid.y > 65535 || grid.z > 65535) refuse("a grid that is too large");
  if (shared_bytes < 0 || shared_bytes > 227 * 1024)
    refuse("more dynamic shared memory than a block can have");
  grid_size = grid;
  block_size = size;
  block.thread = &thread;
  block.threads = static_cast<int>(threads);
  block.fibers.resize(static_cast<std::size_t>(threads));
  block.warps.resize(static_cast<std::size_t>((threads + kLanes - 1) / kLanes));
  block.failure.clear();
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        block_index = {x, y, z};
        block.dynamic.assign(static_cast<std::size_t>(shared_bytes) + 2 * kGuardBytes, kGuard);
        std::memset(block.dynamic.data() + kGuardBytes, kPoison, static_cast<std::size_t>(shared_bytes));
        run_block();
        check_guard(block.dynamic, shared_bytes);
        if (!block.failure.empty()) run_error("{}: block ({}, {}, {}): {}", op, x, y, z, block.failure);
      }
}

void block_barrier() {
  block.at_barrier.push_back(block.current);
  if (static_cast<int>(block.at_barrier.size()) == block.threads) {
    block.ready.insert(block.ready.end(), block.at_barrier.begin(), block.at_barrier.end());
    block.at_barrier.clear();
  }
  to_scheduler();
}

void warp_barrier() {
  Warp& warp = block.warps[static_cast<std::size_t>(block.current / kLanes)];
  warp.waiting.push_back(block.current);
  if (static_cast<int>(warp.waiting.size()) == warp.lanes) {
    block.ready.insert(block.ready.end(), warp.waiting.begin(), warp.waiting.end());
    warp.waiting.clear();
  }
  to_scheduler();
}

int lane() { return block.current % kLanes; }

const unsigned char* exchange(const void* value, std::size_t bytes) {
  Fiber& self = block.fibers[static_cast<std::size_t>(block.current)];
  Warp& warp = block.warps[static_cast<std::size_t>(block.current / kLanes)];
  auto& places = warp.places[self.exchanges++ % 2];
  std::memcpy(places[block.current % kLanes], value, bytes);
  warp_barrier();
  return &places[0][0];
}

unsigned ballot(bool predicate) {
  const unsigned char* places = exchange(&predicate, sizeof(predicate));
  const Warp& warp = block.warps[static_cast<std::size_t>(block.current / kLanes)];
  unsigned bits = 0;
  for (int i = 0; i < warp.lanes; ++i)
    bits |= static_cast<unsigned>(places[static_cast<std::size_t>(i) * kExchangeBytes] != 0) << i;
  return bits;
}

void enter_shared(void* memory, std::size_t bytes) {
  std::uint64_t& last = block.shared_of_block[memory];
  if (last == block.serial) return;
  last = block.serial;
  std::memset(memory, kPoison, bytes);
}

unsigned char* dynamic_shared() { return block.dynamic.data() + kGuardBytes; }

void fail(const std::string& what) {
  if (block.failure.empty()) block.failure = what;
}

void require_aligned(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0)
    fail("a misaligned access to a vector of " + std::to_string(bytes) + " bytes");
}

}  // namespace compact::cuda::emulation

namespace compact::testing {

void set_fiber_order(std::uint32_t seed) {
  cuda::emulation::shuffled = seed != 0;
  cuda::emulation::order.seed(seed);
}
bool is_emulated() { return true; }

}  // namespace compact::testing
