#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/adam_step.h"
#include "compact/kernels/rounding.h"

namespace compact::cuda {

void adamw(Queue& queue, const AdamStep& step, const Rounding& rounding, const Tensor& w, const Tensor& g,
           const Tensor& m, const Tensor& v, const Tensor& master);
/// v like g, or [rows of g].
void adam_direction(Queue& queue, const AdamStep& step, const Rounding& rounding, const Tensor& g,
                    const Tensor& m, const Tensor& v);

}  // namespace compact::cuda
