#include "cuda_emulation/device_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "cuda_emulation/block_memory.h"
#include "cuda_emulation/sanitizer.h"

namespace compact::cuda::emulation {

namespace {

constexpr std::size_t kHeader = 256;
constexpr unsigned char kGuard = 0xA5;
/// Memory of arenas is kept for the next ones of the same size, as long as no more than these are unused.
constexpr std::size_t kKeptFrom = std::size_t{16} << 20, kMostUnused = 2;

struct Block {
  std::size_t bytes = 0;
  bool in_use = true;
  std::unordered_map<void*, std::size_t> tensors;  // where they began, and the most bytes of one there
};
std::mutex mutex;
std::map<unsigned char*, Block> blocks;  // by their memory

void set_guards(unsigned char* memory, std::size_t bytes) {
  std::memset(memory - kHeader, kGuard, kHeader);
  std::memset(memory + bytes, kGuard, kGuardBytes);
  forbid(memory - kHeader, kHeader);
  forbid(memory + bytes, kGuardBytes);
}

bool guards_hold(const unsigned char* memory, std::size_t bytes) {
  allow(memory - kHeader, kHeader + bytes + kGuardBytes);
  const auto is_guard = [](unsigned char byte) { return byte == kGuard; };
  return std::all_of(memory - kHeader, memory, is_guard) &&
         std::all_of(memory + bytes, memory + bytes + kGuardBytes, is_guard);
}

}  // namespace

void* allocate_guarded(std::size_t bytes) {
  const std::lock_guard lock(mutex);
  for (auto& [memory, block] : blocks) {
    if (block.in_use || block.bytes != bytes) continue;
    for (const auto& [at, size] : block.tensors) std::memset(at, kPoison, size);
    block.tensors.clear();
    block.in_use = true;
    set_guards(memory, bytes);
    return memory;
  }
  auto* base =
      static_cast<unsigned char*>(std::aligned_alloc(256, (kHeader + bytes + kGuardBytes + 255) / 256 * 256));
  if (base == nullptr) return nullptr;
  unsigned char* const memory = base + kHeader;
  std::memset(memory, kPoison, bytes);
  set_guards(memory, bytes);
  blocks[memory].bytes = bytes;
  return memory;
}

void free_guarded(void* memory) {
  const std::lock_guard lock(mutex);
  const auto entry = blocks.find(static_cast<unsigned char*>(memory));
  if (entry == blocks.end() || !guards_hold(entry->first, entry->second.bytes)) {
    std::fputs("cuda emulation: a write outside of an allocation\n", stderr);
    std::abort();
  }
  const auto unused =
      std::count_if(blocks.begin(), blocks.end(), [](const auto& other) { return !other.second.in_use; });
  if (entry->second.bytes >= kKeptFrom && static_cast<std::size_t>(unused) < kMostUnused) {
    entry->second.in_use = false;
    return;
  }
  std::free(entry->first - kHeader);
  blocks.erase(entry);
}

void note_tensor(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  auto entry = blocks.upper_bound(static_cast<unsigned char*>(memory));
  if (entry == blocks.begin()) return;
  std::size_t& most = (--entry)->second.tensors[memory];
  most = std::max(most, bytes);
}

}  // namespace compact::cuda::emulation
