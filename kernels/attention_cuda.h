#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/attention.h"

namespace compact::cuda {

/// The widest head that the kernels take.
inline constexpr std::int64_t kMostHeadWidth = 256;

void attention_forward(Queue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& out, const Tensor& lse);
/// `delta` [B, H, T] F32 is workspace: the dot products of out and dout.
void attention_backward(Queue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const Tensor& delta, const Tensor& dq, const Tensor& dk, const Tensor& dv);

}  // namespace compact::cuda
