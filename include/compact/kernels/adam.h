#pragma once
#include "compact/kernels/adam_step.h"
#include "compact/kernels/projection.h"
#include "compact/memory/context.h"

namespace compact {

/// m, v, w updated in one pass: m = b1 m + (1-b1) g, v = b2 v + (1-b2) g²,
/// w = w (1 - decay) - lr · (m c1) / (sqrt(v c2) + eps). All of one shape, contiguous.
void adamw(Context& context, const AdamStep& step, const Tensor& w, const Tensor& g, const Tensor& m,
           const Tensor& v);

/// The moments m, v move as in `adamw`; g becomes -lr · (m c1) / (sqrt(v c2) + eps). All of one shape,
/// contiguous.
void adam_direction(Context& context, const AdamStep& step, const Tensor& g, const Tensor& m,
                    const Tensor& v);

/// Adam in the compressed space and the expansion of its result (design, section 2; paper Algorithm 3):
/// m, v [rows, r] updated from g [rows, r]; g becomes -lr · N; w [rows, n] = w (1 - decay) + g · Pᵀ.
/// `g` is consumed. No temporary of the size of w.
void projected_adam(Context& context, const AdamStep& step, const Projection& p, const Tensor& w,
                    const Tensor& g, const Tensor& m, const Tensor& v);

}  // namespace compact
