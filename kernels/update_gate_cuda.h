#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

namespace compact::cuda {

void add_sum(Queue& queue, const Tensor& x, const Tensor& total);
void update_gate(Queue& queue, const Tensor& loss_total, const Tensor& norm, double max_norm,
                 const Tensor& squares, const Tensor& gate);

}  // namespace compact::cuda
