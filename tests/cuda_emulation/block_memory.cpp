#include "cuda_emulation/block_memory.h"

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compact/core/error.h"
#include "cuda_emulation/fibers.h"
#include "cuda_emulation/sanitizer.h"

namespace compact::cuda::emulation {

constinit thread_local std::uint64_t block_serial = 0;

namespace {

constexpr unsigned char kGuard = 0xA5;
constexpr std::size_t kMostDynamic = 227 * 1024, kMostStatic = 48 * 1024;
constexpr std::size_t kMostArrays = 32;
constexpr std::size_t kCopyBytes = 16;

struct Copy {
  void* to;
  const void* from;
  bool valid;
  int group;  // number of its commit among those of the thread
};
/// Of one thread.
struct Copies {
  std::vector<Copy> pending;  // oldest first
  int committed = 0;
};
struct Area {
  unsigned char* before;
  std::size_t bytes;
};

/// Of one thread of the host.
struct BlockMemory {
  std::vector<Area> areas;  // shared memory of the running block
  std::size_t static_used = 0;
  std::array<Copies, 1024> copies;
  bool copies_used = false;  // since the block started
  alignas(kGuardBytes) unsigned char dynamic[kGuardBytes + kMostDynamic + kGuardBytes];
  alignas(kGuardBytes) unsigned char arrays[kMostStatic + (kMostArrays + 1) * 2 * kGuardBytes];
};
constinit thread_local BlockMemory* own = nullptr;

/// Makes `own` in a thread that runs its first block.
BlockMemory& own_memory() {
  static thread_local const std::unique_ptr<BlockMemory> owner = std::make_unique<BlockMemory>();
  return *(own = owner.get());
}

bool is_guard(const unsigned char* at) {
  for (std::size_t i = 0; i < kGuardBytes; ++i)
    if (at[i] != kGuard) return false;
  return true;
}

Copies& own_copies() { return own->copies[static_cast<std::size_t>(thread_number())]; }

/// `bytes` behind `before`, where the guards are for which there is room on both sides.
unsigned char* enter(unsigned char* before, std::size_t bytes) {
  unsigned char *memory = before + kGuardBytes, *after = memory + bytes;
  allow(before, bytes + 2 * kGuardBytes);
  std::memset(before, kGuard, kGuardBytes);
  std::memset(memory, kPoison, bytes);
  std::memset(after, kGuard, kGuardBytes);
  forbid(before, kGuardBytes);
  forbid(after, kGuardBytes);
  own->areas.push_back({before, bytes});
  return memory;
}

}  // namespace

unsigned char* enter_shared(std::size_t bytes) {
  unsigned char* const before = own->arrays + own->static_used;
  own->static_used += (bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes + 2 * kGuardBytes;
  if (own->static_used > sizeof(own->arrays)) bug("a kernel with more static shared memory than a card has");
  return enter(before, bytes);
}

unsigned char* dynamic_shared() { return own->dynamic + kGuardBytes; }

void start_block_memory(std::int64_t dynamic_bytes) {
  BlockMemory& m = own_memory();
  ++block_serial;
  m.areas.clear();
  m.static_used = 0;
  if (m.copies_used)
    for (Copies& copies : m.copies) {
      copies.pending.clear();
      copies.committed = 0;
    }
  m.copies_used = false;
  const std::size_t bytes = static_cast<std::size_t>(dynamic_bytes);
  enter(m.dynamic, bytes);
  forbid(m.dynamic + kGuardBytes + bytes, kGuardBytes + kMostDynamic - bytes);
}

void check_block_memory() {
  for (const Area& area : own->areas) {
    allow(area.before, area.bytes + 2 * kGuardBytes);
    if (!is_guard(area.before) || !is_guard(area.before + kGuardBytes + area.bytes))
      fail(area.before == own->dynamic ? "a write outside of the dynamic shared memory"
                                       : "a write outside of a shared array");
  }
}

void misaligned(std::size_t bytes) {
  fail("a misaligned access to a vector of " + std::to_string(bytes) + " bytes");
}

void copy_later(void* to, const void* from, bool valid) {
  require_aligned(to, kCopyBytes);
  if (valid) require_aligned(from, kCopyBytes);
  std::memset(to, kPoison, kCopyBytes);
  own->copies_used = true;
  Copies& mine = own_copies();
  mine.pending.push_back({to, from, valid, mine.committed});
}

void commit_copies() {
  own->copies_used = true;
  ++own_copies().committed;
}

void wait_for_copies(int groups) {
  Copies& mine = own_copies();
  std::size_t done = 0;
  for (; done < mine.pending.size() && mine.pending[done].group < mine.committed - groups; ++done) {
    const Copy& copy = mine.pending[done];
    if (copy.valid)
      std::memcpy(copy.to, copy.from, kCopyBytes);
    else
      std::memset(copy.to, 0, kCopyBytes);
  }
  mine.pending.erase(mine.pending.begin(), mine.pending.begin() + static_cast<std::ptrdiff_t>(done));
}

void check_copies() {
  if (!own_copies().pending.empty()) fail("asynchronous copies that the thread never waits for");
}

}  // namespace compact::cuda::emulation
