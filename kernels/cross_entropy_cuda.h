#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

namespace compact::cuda {

/// With `gradient` the logits become it, times `scale`.
void cross_entropy(Queue& queue, const Tensor& logits, const Tensor& labels, bool gradient, float scale,
                   const Tensor& loss);

}  // namespace compact::cuda
