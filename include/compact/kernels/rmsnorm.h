#pragma once
#include "compact/memory/context.h"

namespace compact {

/// y [N, C] = x · rstd · w, rstd [N] (F32) = 1/sqrt(mean(x²) + eps), w [C]. Statistics in fp32.
void rmsnorm_forward(Context& context, const Tensor& x, const Tensor& w, float eps, const Tensor& y,
                     const Tensor& rstd);

/// sum = x + delta, then y = rmsnorm(sum), in one pass; all [N, C], rstd [N] (F32). Gives the same bits as
/// `add` followed by `rmsnorm_forward`, which a recomputation relies on. sum may be x or delta.
void residual_rmsnorm_forward(Context& context, const Tensor& x, const Tensor& delta, const Tensor& w,
                              float eps, const Tensor& sum, const Tensor& y, const Tensor& rstd);

/// dx [N, C] += the gradient of rmsnorm at x for dy [N, C] (dx arrives holding the gradient of the residual
/// path); dw [C] += the gradient of the weight. The order of summation does not depend on the number of
/// threads.
void rmsnorm_backward(Context& context, const Tensor& dy, const Tensor& x, const Tensor& w,
                      const Tensor& rstd, const Tensor& dx, const Tensor& dw);

}  // namespace compact
