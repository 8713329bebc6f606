#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

namespace compact::cuda {

/// With `gradient` the logits become it, times `scale`. Labels were checked where they were staged; one that
/// names no column all the same gives a loss of NaN, which no step survives.
void cross_entropy(Queue& queue, const Tensor& logits, const Tensor& labels, bool gradient, float scale,
                   const Tensor& loss);

}  // namespace compact::cuda
