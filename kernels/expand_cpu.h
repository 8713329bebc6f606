#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/rounding_cpu.h"

/// How a weight takes a change that was computed in float. For the *_cpu.cpp files alone.
namespace compact::cpu::COMPACT_ISA {

namespace {
/// w[k] = kept · w[k] + change[k] for k < count, the elements (row, column + k) of a tensor whose bf16
/// elements round as `rounding` says. `column` is a multiple of 4.
[[gnu::always_inline]] inline void take_change(float* __restrict w, const float* __restrict change,
                                               std::int64_t count, float kept, const Rounding&, std::int64_t,
                                               std::int64_t) {
#pragma omp simd
  for (std::int64_t k = 0; k < count; ++k) w[k] = __builtin_fmaf(w[k], kept, change[k]);
}

[[gnu::always_inline]] inline void take_change(Bf16* __restrict w, const float* __restrict change,
                                               std::int64_t count, float kept, const Rounding& rounding,
                                               std::int64_t row, std::int64_t column) {
  if (!rounding.stochastic) {
#pragma omp simd
    for (std::int64_t k = 0; k < count; ++k)
      w[k] = nearest_bf16(__builtin_fmaf(to_float(w[k]), kept, change[k]));
    return;
  }
  for (std::int64_t begin = 0; begin < count; begin += kRandomWords) {
    std::uint32_t words[kRandomWords];
    random_words(words, rounding, row, column + begin);
    const std::int64_t part = count - begin < kRandomWords ? count - begin : kRandomWords;
#pragma omp simd
    for (std::int64_t k = 0; k < part; ++k)
      w[begin + k] =
          stochastic_bf16(__builtin_fmaf(to_float(w[begin + k]), kept, change[begin + k]), words[k]);
  }
}
}  // namespace

}  // namespace compact::cpu::COMPACT_ISA
