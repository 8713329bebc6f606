#include "compact/kernels/adam.h"

#include <cmath>

#include "kernels/adam_cpu.h"
#include "kernels/checks.h"

namespace compact {

namespace {
bool alike(const Tensor& a, const Tensor& b) { return is_matrix(a, b.rows(), b.cols()) && a.contiguous(); }
}  // namespace

AdamStep adam_step(double beta1, double beta2, double eps, std::int64_t t) {
  require(t >= 1, "adam_step", "the exponent is counted from 1");
  AdamStep step;
  step.beta1 = static_cast<float>(beta1);
  step.beta2 = static_cast<float>(beta2);
  step.rest1 = static_cast<float>(1.0 - beta1);
  step.rest2 = static_cast<float>(1.0 - beta2);
  step.eps = static_cast<float>(eps);
  step.correction1 = static_cast<float>(1.0 / (1.0 - std::pow(beta1, static_cast<double>(t))));
  step.correction2 = static_cast<float>(1.0 / (1.0 - std::pow(beta2, static_cast<double>(t))));
  return step;
}

void adamw(Context& context, const AdamStep& step, const Tensor& w, const Tensor& g, const Tensor& m,
           const Tensor& v) {
  require(is_float(w) && is_float(g) && is_float(m) && is_float(v), "adamw", "not tensors of floats");
  require(w.contiguous() && alike(g, w) && alike(m, w) && alike(v, w), "adamw",
          "w, g, m, v are not of one shape and contiguous");
  require_computable(context, "adamw", {w, g, m, v});
  if (context.planning()) return;
  COMPACT_CALL(adam_update, step, w.f32(), g.f32(), m.f32(), v.f32(), w.elements());
}

void adam_direction(Context& context, const AdamStep& step, const Tensor& g, const Tensor& m,
                    const Tensor& v) {
  require(is_float(g) && is_float(m) && is_float(v), "adam_direction", "not tensors of floats");
  require(g.contiguous() && alike(m, g) && alike(v, g), "adam_direction",
          "g, m, v are not of one shape and contiguous");
  require_computable(context, "adam_direction", {g, m, v});
  if (context.planning()) return;
  COMPACT_CALL(adam_direction, step, g.f32(), m.f32(), v.f32(), g.elements());
}

void projected_adam(Context& context, const AdamStep& step, const Projection& p, const Tensor& w,
                    const Tensor& g, const Tensor& m, const Tensor& v) {
  require(is_float(w) && w.contiguous(), "projected_adam", "w is not a contiguous tensor of floats");
  require(is_matrix(g, w.rows(), p.r), "projected_adam", "g is not [rows of w, r]");
  require_computable(context, "projected_adam", {w, g, m, v});
  adam_direction(context, step, g, m, v);
  if (step.decay != 0 && !context.planning()) COMPACT_CALL(adam_decay, w.f32(), step.decay, w.elements());
  expand_add(context, p, g, w);
}

}  // namespace compact
