#pragma once
#include <type_traits>

#include "kernels/fours_cuda.h"
#include "kernels/weight_change_cuda.h"

/// How four neighbours of a weight take a change that was computed in float.
namespace compact::cuda {

/// w[k] = kept · w[k] + by[k] for k < count: elements (row, column + k) of the weight, `column` a multiple of
/// 4, `vector` as in fours_cuda.h.
template <typename W>
__device__ __forceinline__ void take_change(W* w, const float (&by)[4], bool vector, std::int64_t count,
                                            const WeightChange& change, std::int64_t row,
                                            std::int64_t column) {
  const Four before = load_four(w, vector, count);
  FourOf<W> after{};
  if constexpr (std::is_same_v<W, float>) {
#pragma unroll
    for (int k = 0; k < 4; ++k) after.x[k] = fmaf(before.x[k], change.kept, by[k]);
  } else if (change.stochastic != 0) {
    const uint4 words = random_words(change, row, column / 4);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      after.x[k] = stochastic_bf16(fmaf(before.x[k], change.kept, by[k]), word_of(words, k));
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) after.x[k] = nearest_bf16(fmaf(before.x[k], change.kept, by[k]));
  }
  store_four(w, after, vector, count);
}

}  // namespace compact::cuda
