#pragma once
#include <algorithm>
#include <cstdint>

#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

namespace compact::cuda {

/// Where `delta` is empty, `sum` is too: the plain norm of x.
void rmsnorm_forward(Queue& queue, const Tensor& x, const Tensor& delta, const Tensor& sum, const Tensor& w,
                     float eps, const Tensor& y, const Tensor& rstd);
/// Chunks of rows whose sums for dw are made apart: a function of N alone. With 512 blocks of 256 threads a
/// large device is full.
inline std::int64_t rmsnorm_row_chunks(std::int64_t N) { return std::clamp<std::int64_t>(N / 8, 1, 512); }
/// `partial` [rmsnorm_row_chunks(N), C] F32 is workspace.
void rmsnorm_backward(Queue& queue, const Tensor& dy, const Tensor& x, const Tensor& w, const Tensor& rstd,
                      const Tensor& dx, const Tensor& partial, const Tensor& dw);

}  // namespace compact::cuda
