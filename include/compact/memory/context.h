#pragma once
#include <compare>
#include <cstdint>
#include <vector>

#include "compact/core/device.h"
#include "compact/memory/arena.h"
#include "compact/memory/op_clock.h"

namespace compact {

namespace cuda {
class Queue;
}

/// Floating-point operations that ops have asked for, by kind. A product [a,b] x [b,c] counts 2abc.
struct FlopCount {
  std::int64_t gemm = 0;       ///< all matrix products, projections included
  std::int64_t attention = 0;  ///< the products inside attention, visible positions only
};

/// One matrix product as it was asked for, for measuring it alone. Strides are in elements.
struct GemmCall {
  std::int64_t M = 0, K = 0, N = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  DType operands = DType::F32, result = DType::F32;
  auto operator<=>(const GemmCall&) const = default;
};

/// What every op needs to know about where it runs. One per device and rank; not shared between threads.
struct Context {
  /// `queue` is there where the arena is that of a CUDA device.
  explicit Context(Arena& arena_, cuda::Queue* queue_ = nullptr) : arena(arena_), queue(queue_) {}
  bool planning() const { return arena.device() == Device::Plan; }
  /// True where ops run on, or are planned for, a CUDA device: scratch is then what its kernels need.
  bool on_cuda() const { return arena.target() == Device::Cuda; }

  Arena& arena;
  cuda::Queue* queue;
  FlopCount flops;
  std::vector<GemmCall>* gemm_calls = nullptr;  ///< where given, every product is noted here
  OpClock* clock = nullptr;                     ///< where given, ops add their times to it
};

}  // namespace compact
