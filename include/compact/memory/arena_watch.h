#pragma once
#include <cstdint>

namespace compact {

/// Who hears of every tensor of an arena on a CUDA device. Tests set one, to poison memory that no tensor
/// owns (tests/cuda_emulation/watch.cpp); the program has none.
struct ArenaWatch {
  std::int64_t gap =
      0;  ///< bytes left free behind every tensor, a multiple of Arena::kAlignment; not counted
  void (*reserved)(void* memory, std::int64_t bytes) = nullptr;  ///< the whole arena, no tensor in it yet
  void (*taken)(void* memory, std::int64_t bytes) = nullptr;  ///< a tensor, without the bytes that align it
  void (*released)(void* memory, std::int64_t bytes) = nullptr;
};
inline const ArenaWatch* arena_watch = nullptr;

}  // namespace compact
