#pragma once
#include "compact/kernels/adam_step.h"
#include "compact/kernels/projection.h"
#include "compact/kernels/rounding.h"
#include "compact/memory/context.h"

namespace compact {

// All tensors are contiguous. w and g are each F32 or BF16, m and v both F32 or both BF16; all arithmetic is
// fp32, and a step is made of the moments as computed, before they are rounded for storage. One pass over
// memory. A tensor of one dimension (a norm's weight) is one row where random words are counted
// (compact/kernels/rounding.h).

/// m, v, w updated in one pass: m = b1 m + (1-b1) g, v = b2 v + (1-b2) g²,
/// w = w (1 - decay) - lr · (m c1) / (sqrt(v c2) + eps). All of one shape. Where `master` (F32, like w) is
/// not empty it is what is updated, and w becomes its nearest value; else a BF16 w is rounded as `rounding`
/// says. A BF16 m is rounded to nearest (each update moves it by a tenth, far more than a rounding), a BF16 v
/// stochastically (an update moves it by a thousandth, which to nearest would be lost).
void adamw(Context& context, const AdamStep& step, const Rounding& rounding, const Tensor& w, const Tensor& g,
           const Tensor& m, const Tensor& v, const Tensor& master);

/// The moments m, v move as in `adamw`; g becomes -lr · (m c1) / (sqrt(v c2) + eps), in BF16 to nearest. All
/// [rows, cols]. A v of [rows] holds one second moment for each row (output channel) instead, moved by the
/// mean of the row's g²: v_i = b2 v_i + (1-b2) mean_j g_ij²; the mean is summed in a fixed order.
void adam_direction(Context& context, const AdamStep& step, const Rounding& rounding, const Tensor& g,
                    const Tensor& m, const Tensor& v);

/// Adam in the compressed space and the expansion of its result (design, section 2; paper Algorithm 3):
/// m [rows, r] and v ([rows, r], or [rows]: one for each output channel) updated from g [rows, r]; g becomes
/// -lr · N; w [rows, n] = w (1 - decay) + g · Pᵀ, through `master` and `rounding` as in adamw. `g` is
/// consumed. No temporary of the size of w.
void projected_adam(Context& context, const AdamStep& step, const Rounding& rounding, const Projection& p,
                    const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v, const Tensor& master);

}  // namespace compact
