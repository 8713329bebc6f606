#pragma once
#include <cstdint>

#include "compact/kernels/projection.h"
#include "compact/memory/context.h"

namespace compact {

/// The numbers of one Adam update; all derived ones are made in double by `adam_step`.
struct AdamStep {
  float beta1 = 0, beta2 = 0, eps = 0;
  float correction1 = 1;   ///< 1 / (1 - beta1^t), t counted from 1
  float correction2 = 1;   ///< 1 / (1 - beta2^t)
  float lr = 0;            ///< the step size of this weight, its scale factors included
  float decay = 0;         ///< lr · weight_decay, decoupled: w is first multiplied by 1 - decay
  float gradient_scale = 1;  ///< multiplies the gradient first (clipping by the global norm)
};

/// Fills the corrections of `step` for exponent t >= 1.
AdamStep adam_step(double beta1, double beta2, double eps, std::int64_t t);

/// m, v, w updated in one pass: m = b1 m + (1-b1) g, v = b2 v + (1-b2) g²,
/// w = w (1 - decay) - lr · (m c1) / (sqrt(v c2) + eps). All of one shape, contiguous.
void adamw(Context& context, const AdamStep& step, const Tensor& w, const Tensor& g, const Tensor& m,
           const Tensor& v);

/// Adam in the compressed space and the expansion of its result (design, section 2; paper Algorithm 3):
/// m, v [rows, r] updated from g [rows, r]; g becomes -lr · N; w [rows, n] = w (1 - decay) + g · Pᵀ.
/// `g` is consumed. No temporary of the size of w.
void projected_adam(Context& context, const AdamStep& step, const Projection& p, const Tensor& w, const Tensor& g,
                    const Tensor& m, const Tensor& v);

}  // namespace compact
