#pragma once
#include <cstdint>

#include "kernels/fours_cuda.h"
#include "kernels/gaussian_cuda.h"
#include "kernels/take_change_cuda.h"

/// What the kernels of w = kept · w + d · Pᵀ share.
namespace compact::cuda {

/// The weight w [rows, cols], columns first_column .. of the whole one, and, where w is a master weight, the
/// place of its nearest bf16 values.
template <typename W>
struct Weight {
  W* data;
  std::int64_t ld, rows, cols, first_column;
  Bf16* nearest;  // or null
  std::int64_t nearest_ld;
  std::int64_t aligned, nearest_aligned;  // groups of four are vectors
};

template <typename W>
Weight<W> weight(const Tensor& w, std::int64_t first_column, const Tensor& nearest) {
  return {w.as<W>(),
          w.ld,
          w.rows(),
          w.cols(),
          first_column,
          nearest.as<Bf16>(),
          nearest.ld,
          has_fours(w) ? 1 : 0,
          has_fours(nearest) ? 1 : 0};
}

/// Elements (row, column .. column + 3) of w take their new values; column is a multiple of four.
template <typename W>
__device__ __forceinline__ void change_four(const Weight<W>& w, const WeightChange& change, std::int64_t row,
                                            std::int64_t column, const Four& by) {
  const std::int64_t count = w.cols - column;
  if (row >= w.rows || count <= 0) return;
  const FourOf<W> values = take_change(w.data + row * w.ld + column, by.x, w.aligned != 0 && count >= 4,
                                       count, change, row, w.first_column + column);
  if (sizeof(W) != 4 || w.nearest == nullptr) return;
  FourOf<Bf16> nearest;
#pragma unroll
  for (int k = 0; k < 4; ++k) put(nearest.x[k], to_float(values.x[k]));
  store_four(w.nearest + row * w.nearest_ld + column, nearest, w.nearest_aligned != 0 && count >= 4, count);
}

/// In bf16 by tensor cores. `rows_of_p` as in expand_add; `change` is a live value.
void expand_bf16(Queue& queue, const Projection& p, const Tensor& rows_of_p, const Tensor& d,
                 const WeightChange* change, std::int64_t first_column, const Tensor& w,
                 const Tensor& nearest);
/// In fp32 by multiply-adds.
void expand_f32(Queue& queue, const Projection& p, const Tensor& rows_of_p, const Tensor& d,
                const WeightChange* change, std::int64_t first_column, const Tensor& w,
                const Tensor& nearest);

}  // namespace compact::cuda
