#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/gemm.h"

namespace compact::cuda {

/// Bytes of scratch that every product is given.
inline constexpr std::int64_t kGemmWorkspace = std::int64_t{32} << 20;

/// C = op(A) op(B), plus the old C where `accumulate`, by cuBLASLt. No size is 0. `workspace` has
/// kGemmWorkspace bytes. Sums are fp32; F32 operands are rounded to TF32 only where the queue's options say
/// so. The algorithm of a product is looked for once in the life of the queue. Throws RunError naming the
/// product where cuBLASLt has none.
void gemm(Queue& queue, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
          const Tensor& c, bool accumulate, const Tensor& workspace);

/// Different products that `queue` has an algorithm for, for tests.
std::int64_t products_known(Queue& queue);

}  // namespace compact::cuda
