#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "compact/core/philox.h"
#include "compact/kernels/rounding.h"
#include "kernels/gate_rule.h"
#include "kernels/philox_cuda.h"

/// How kernels give a weight its new value. It differs from step to step, so kernels take it as a live value
/// (Queue::live).
namespace compact::cuda {

struct WeightChange {
  const float* gate = nullptr;  ///< on the device (compact/kernels/update_gate.h); null: open
  std::uint64_t seed = 0;       ///< as in Rounding
  float kept = 1;               ///< w = kept · w + change
  std::uint32_t stochastic = 1, stream_id = 0, step = 0;
  std::int64_t first_row = 0;  ///< of the tensor in the whole weight
};

inline WeightChange weight_change(float kept, const Rounding& rounding, const float* gate) {
  return {gate,
          rounding.seed,
          kept,
          rounding.stochastic ? 1u : 0u,
          stream_word(Stream::Rounding, rounding.id),
          rounding.step,
          rounding.first_row};
}

/// The random words of elements 4 · block .. 4 · block + 3 of a row.
__device__ __forceinline__ uint4 random_words(const WeightChange& change, std::int64_t row,
                                              std::int64_t block) {
  return philox_words(static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(change.first_row + row),
                      change.step, change.stream_id, change.seed);
}

__device__ __forceinline__ std::uint32_t word_of(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

}  // namespace compact::cuda
