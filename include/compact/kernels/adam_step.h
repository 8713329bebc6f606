#pragma once
#include <cstdint>

namespace compact {

/// The numbers of one Adam update; all derived ones are made in double by `adam_step`.
struct AdamStep {
  float beta1 = 0, beta2 = 0, eps = 0;
  float rest1 = 1, rest2 = 1;  ///< 1 - beta1, 1 - beta2: made in float they would lose five digits
  float correction1 = 1;       ///< 1 / (1 - beta1^t), t counted from 1
  float correction2 = 1;       ///< 1 / (1 - beta2^t)
  float lr = 0;                ///< the step size of this weight, its scale factors included
  float decay = 0;             ///< lr · weight_decay, decoupled: w is first multiplied by 1 - decay
  float gradient_scale = 1;    ///< multiplies the gradient first
  /// Where given, on the device of the op (compact/kernels/update_gate.h): gate[0] multiplies the gradient
  /// too, and where gate[1] is 0 nothing changes.
  const float* gate = nullptr;
};

/// Betas, eps and corrections for exponent t >= 1.
AdamStep adam_step(double beta1, double beta2, double eps, std::int64_t t);

}  // namespace compact
