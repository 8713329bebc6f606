#pragma once
#include <cstdint>

#include "kernels/fours_cuda.h"
#include "kernels/weight_change_cuda.h"

/// How four neighbours of a weight take a change that was computed in float.
namespace compact::cuda {

/// w[k] = kept · w[k] + by[k] for k < count: elements (row, column + k) of the weight, `column` a multiple of
/// 4, `vector` as in fours_cuda.h. Returns the new values.
template <typename W>
__device__ __forceinline__ FourOf<W> take_change(W* w, const float (&by)[4], bool vector, std::int64_t count,
                                                 const WeightChange& change, std::int64_t row,
                                                 std::int64_t column) {
  const Four before = load_four(w, vector, count);
  const bool stochastic = sizeof(W) == 2 && change.stochastic != 0;
  uint4 words = make_uint4(0, 0, 0, 0);
  if (stochastic) words = random_words(change, row, column / 4);
  FourOf<W> after;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float value = fmaf(before.x[k], change.kept, by[k]);
    if (stochastic)
      put_random(after.x[k], value, word_of(words, k));
    else
      put(after.x[k], value);
  }
  store_four(w, after, vector, count);
  return after;
}

}  // namespace compact::cuda
