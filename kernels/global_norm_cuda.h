#pragma once
#include <span>

#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

namespace compact::cuda {

/// Elements of the F64 workspace that `global_norm` takes.
std::int64_t global_norm_partials(std::span<const Tensor> tensors);
void global_norm(Queue& queue, std::span<const Tensor> tensors, const Tensor& partials, const Tensor& norm);

}  // namespace compact::cuda
