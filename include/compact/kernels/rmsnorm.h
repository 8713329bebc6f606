#pragma once
#include "compact/memory/context.h"

namespace compact {

/// y [N, C] = x · rstd · w, rstd [N] (F32) = 1/sqrt(mean(x²) + eps), w [C]. Arithmetic in fp32; x, w and y
/// (in what follows also delta, sum, dy and dx) are of one type, F32 or BF16.
void rmsnorm_forward(Context& context, const Tensor& x, const Tensor& w, float eps, const Tensor& y,
                     const Tensor& rstd);

/// sum = x + delta, then y = rmsnorm(sum), in one pass; all [N, C], rstd [N] (F32). Gives the same bits as
/// `add` followed by `rmsnorm_forward`, which a recomputation relies on: the norm is that of the rounded sum.
/// sum may be x or delta.
void residual_rmsnorm_forward(Context& context, const Tensor& x, const Tensor& delta, const Tensor& w,
                              float eps, const Tensor& sum, const Tensor& y, const Tensor& rstd);

/// dx [N, C] += the gradient of rmsnorm at x for dy [N, C] (dx arrives holding the gradient of the residual
/// path); dw [C] (F32 or BF16, whatever the type of x) += the gradient of the weight, summed over all rows in
/// fp32 first. The order of summation does not depend on the number of threads.
void rmsnorm_backward(Context& context, const Tensor& dy, const Tensor& x, const Tensor& w,
                      const Tensor& rstd, const Tensor& dx, const Tensor& dw);

}  // namespace compact
