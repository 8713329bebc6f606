#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

namespace compact::cuda {

void swiglu_forward(Queue& queue, const Tensor& gate_up, const Tensor& out, const Tensor& activation);
void swiglu_backward(Queue& queue, const Tensor& gate_up, const Tensor& activation, const Tensor& dout,
                     const Tensor& dgate_up, const Tensor& product);

}  // namespace compact::cuda
