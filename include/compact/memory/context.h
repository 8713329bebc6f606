#pragma once
#include <cstdint>

#include "compact/core/device.h"
#include "compact/memory/arena.h"

namespace compact {

/// Floating-point operations that ops have asked for, by kind. A product [a,b] x [b,c] counts 2abc.
struct FlopCount {
  std::int64_t gemm = 0;       ///< all matrix products, projections included
  std::int64_t attention = 0;  ///< the products inside attention, visible positions only
};

/// What every op needs to know about where it runs. One per device and rank; not shared between threads.
struct Context {
  explicit Context(Arena& arena_) : arena(arena_) {}
  Device device() const { return arena.device(); }
  bool planning() const { return arena.device() == Device::Plan; }

  Arena& arena;
  FlopCount flops;
};

}  // namespace compact
