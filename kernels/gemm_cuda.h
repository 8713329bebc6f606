#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/gemm.h"

namespace compact::cuda {

/// Bytes of scratch that every product is given.
inline constexpr std::int64_t kGemmWorkspace = std::int64_t{32} << 20;

/// C = op(A) op(B), plus the old C where `accumulate`, by cuBLASLt. No size is 0. `workspace` has
/// kGemmWorkspace bytes.
void gemm(Queue& queue, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
          const Tensor& c, bool accumulate, const Tensor& workspace);

}  // namespace compact::cuda
