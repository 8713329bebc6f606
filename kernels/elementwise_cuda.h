#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

namespace compact::cuda {

/// Sets every element. All are F32 or BF16, and may be strided views.
void fill(Queue& queue, const Tensor& x, float value);
void copy(Queue& queue, const Tensor& from, const Tensor& to);
void add(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& out);
/// x (F32) = factor · x.
void scale(Queue& queue, const Tensor& x, float factor);

}  // namespace compact::cuda
