#include "cuda_emulation/block_memory.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "cuda_emulation/fibers.h"
#include "cuda_emulation/sanitizer.h"

namespace compact::cuda::emulation {

std::uint64_t block_serial = 0;

namespace {

constexpr unsigned char kGuard = 0xA5;
constexpr std::size_t kMostDynamic = 227 * 1024;
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

std::vector<Area> areas;  // shared memory of the running block
std::array<Copies, 1024> copies;
bool copies_used = false;  // since the block started
alignas(128) unsigned char dynamic[kGuardBytes + kMostDynamic + kGuardBytes];

bool is_guard(const unsigned char* at) {
  for (std::size_t i = 0; i < kGuardBytes; ++i)
    if (at[i] != kGuard) return false;
  return true;
}

Copies& own_copies() { return copies[static_cast<std::size_t>(thread_number())]; }

}  // namespace

void enter_shared(unsigned char* before, std::size_t bytes) {
  unsigned char *memory = before + kGuardBytes, *after = memory + bytes;
  allow(before, bytes + 2 * kGuardBytes);
  std::memset(before, kGuard, kGuardBytes);
  std::memset(memory, kPoison, bytes);
  std::memset(after, kGuard, kGuardBytes);
  forbid(before, kGuardBytes);
  forbid(after, kGuardBytes);
  areas.push_back({before, bytes});
}

unsigned char* dynamic_shared() { return dynamic + kGuardBytes; }

void start_block_memory(std::int64_t dynamic_bytes) {
  ++block_serial;
  areas.clear();
  if (copies_used)
    for (Copies& own : copies) {
      own.pending.clear();
      own.committed = 0;
    }
  copies_used = false;
  const std::size_t bytes = static_cast<std::size_t>(dynamic_bytes);
  enter_shared(dynamic, bytes);
  forbid(dynamic + kGuardBytes + bytes, kGuardBytes + kMostDynamic - bytes);
}

void check_block_memory() {
  for (const Area& area : areas) {
    allow(area.before, area.bytes + 2 * kGuardBytes);
    if (!is_guard(area.before) || !is_guard(area.before + kGuardBytes + area.bytes))
      fail(area.before == dynamic ? "a write outside of the dynamic shared memory"
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
  copies_used = true;
  Copies& own = own_copies();
  own.pending.push_back({to, from, valid, own.committed});
}

void commit_copies() {
  copies_used = true;
  ++own_copies().committed;
}

void wait_for_copies(int groups) {
  Copies& own = own_copies();
  std::size_t done = 0;
  for (; done < own.pending.size() && own.pending[done].group < own.committed - groups; ++done) {
    const Copy& copy = own.pending[done];
    if (copy.valid)
      std::memcpy(copy.to, copy.from, kCopyBytes);
    else
      std::memset(copy.to, 0, kCopyBytes);
  }
  own.pending.erase(own.pending.begin(), own.pending.begin() + static_cast<std::ptrdiff_t>(done));
}

void check_copies() {
  if (!own_copies().pending.empty()) fail("asynchronous copies that the thread never waits for");
}

}  // namespace compact::cuda::emulation
