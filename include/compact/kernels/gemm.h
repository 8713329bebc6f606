#pragma once
#include "compact/memory/context.h"

namespace compact {

enum class Transpose { No, Yes };

/// C [M, N] = op(A) [M, K] · op(B) [K, N], plus the old C when `accumulate`. Views may have any row stride.
/// CPU: oneDNN matmul, primitives cached by shape, strides and types, its scratchpad taken from the arena's
/// scratch (also when planning, so that a plan knows it). A and B are of one type; C may be F32 beside BF16
/// operands. Products accumulate in fp32. A CPU without bf16 instructions converts BF16 operands to fp32 in
/// scratch and rounds the result. CUDA: cuBLASLt, with a workspace of one size from scratch
/// (kernels/gemm_cuda.h). Counts 2·M·N·K in `context.flops.gemm`. A dimension of 0 is allowed.
void gemm(Context& context, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
          const Tensor& c, bool accumulate);

}  // namespace compact
