#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/projection.h"

namespace compact::cuda {

void sparse_rows(Queue& queue, const Projection& p, std::int64_t begin, const Tensor& tile);
void sparse_project(Queue& queue, const Projection& p, const Tensor& x, const Tensor& z);
void sparse_expand(Queue& queue, const Projection& p, const Tensor& d, float kept, const Rounding& rounding,
                   const float* gate, const Tensor& w);

}  // namespace compact::cuda
