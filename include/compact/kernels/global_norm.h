#pragma once
#include <span>

#include "compact/memory/context.h"

namespace compact {

/// norm [1] (F32) = square root of the sum of squares over all tensors (F32 or BF16), summed in double in an
/// order that does not depend on the number of threads. Inf or NaN anywhere gives a norm that is not finite.
void global_norm(Context& context, std::span<const Tensor> tensors, const Tensor& norm);

/// The factor that clipping gives all gradients: max_norm / norm where norm > max_norm, else 1. `norm` is
/// finite: a step with another one is skipped before.
float clip_scale(double norm, double max_norm);

}  // namespace compact
