#include <algorithm>
#include <cstring>

#include "compact/memory/arena_watch.h"
#include "cuda_emulation/block_memory.h"
#include "cuda_emulation/device_memory.h"
#include "cuda_emulation/sanitizer.h"
#include "cuda_emulation/streams.h"

/// Memory of arenas that no tensor owns: poisoned when a tensor is released, and forbidden to the kernels
/// where the sanitizer is there to see it.
namespace compact::cuda::emulation {

namespace {

constexpr std::size_t kPoisoned = std::size_t{128} << 10;

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

constexpr ArenaWatch kWatch = {
    .gap = kSanitized ? 256 : 0,
    .reserved = [](void* memory, std::int64_t bytes) { forbid(memory, size(bytes)); },
    .taken =
        [](void* memory, std::int64_t bytes) {
          note_tensor(memory, size(bytes));
          allow(memory, size(bytes));  // for a host that fills it at once
          if (kSanitized) in_order([=] { allow(memory, size(bytes)); });
        },
    .released =
        [](void* memory, std::int64_t bytes) {
          in_order([=] {
            allow(memory, size(bytes));
            // Of a large block the ends are enough to show; all of it would take longer than the kernels.
            const std::size_t poisoned = std::min(size(bytes), kPoisoned);
            std::memset(memory, kPoison, poisoned);
            std::memset(static_cast<unsigned char*>(memory) + size(bytes) - poisoned, kPoison, poisoned);
            forbid(memory, size(bytes));
          });
        },
};

const bool is_set = [] {
  arena_watch = &kWatch;
  return true;
}();

}  // namespace

}  // namespace compact::cuda::emulation
