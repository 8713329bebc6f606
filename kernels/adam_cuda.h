#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/adam_step.h"
#include "compact/kernels/rounding.h"

namespace compact {

/// Whether v is [rows of g] rather than like g, which the sizes alone do not say of a g of one element.
inline bool has_one_for_each_row(const Tensor& v, const Tensor& g) {
  return v.shape == Shape{g.rows()} && (g.shape.rank() > 1 || g.rows() != g.elements());
}

}  // namespace compact

namespace compact::cuda {

void adamw(Queue& queue, const AdamStep& step, const Rounding& rounding, const Tensor& w, const Tensor& g,
           const Tensor& m, const Tensor& v, const Tensor& master);
/// v like g, or [rows of g].
void adam_direction(Queue& queue, const AdamStep& step, const Rounding& rounding, const Tensor& g,
                    const Tensor& m, const Tensor& v);

}  // namespace compact::cuda
