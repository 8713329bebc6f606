#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/projection.h"

namespace compact::cuda {

// `drawn` [s / 32 + r] I32 is workspace: signs and sample of this window.
void hadamard_draw(Queue& queue, const Projection& p, const Tensor& drawn);
void hadamard_rows(Queue& queue, const Projection& p, const Tensor& drawn, std::int64_t begin,
                   const Tensor& tile);
void hadamard_project(Queue& queue, const Projection& p, const Tensor& drawn, const Tensor& x,
                      const Tensor& z);
void hadamard_expand(Queue& queue, const Projection& p, const Tensor& drawn, const Tensor& d, float kept,
                     const Rounding& rounding, const float* gate, const Tensor& w);

}  // namespace compact::cuda
