#include "compact/kernels/adam.h"

#include <cmath>

#include "kernels/adam_cpu.h"
#include "kernels/adam_cuda.h"
#include "kernels/checks.h"
#include "kernels/gate_rule.h"

namespace compact {

namespace {
bool alike(const Tensor& a, const Tensor& b) { return is_matrix(a, b.rows(), b.cols()) && a.contiguous(); }

void check_types(const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v, const char* op) {
  require(is_float(w) && is_float(g) && is_float(m), op, "not tensors of floats");
  require(m.dtype == v.dtype, op, "m and v are not of one type");
}

void check_master(const Tensor& master, const Tensor& w, const char* op) {
  require(master.empty() || (master.dtype == DType::F32 && alike(master, w)), op,
          "the master weight is not F32, contiguous and like w");
}

/// Calls f with values of the element types of w, g and the moments.
template <typename F>
void by_types(const Tensor& w, const Tensor& g, const Tensor& m, F f) {
  by_type(w.dtype,
          [&](auto a) { by_type(g.dtype, [&](auto b) { by_type(m.dtype, [&](auto c) { f(a, b, c); }); }); });
}
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

void adamw(Context& context, const AdamStep& step, const Rounding& rounding, const Tensor& w, const Tensor& g,
           const Tensor& m, const Tensor& v, const Tensor& master) {
  require(w.contiguous() && alike(g, w) && alike(m, w) && alike(v, w), "adamw",
          "w, g, m, v are not of one shape and contiguous");
  check_types(w, g, m, v, "adamw");
  check_master(master, w, "adamw");
  check_rounding(rounding, w.rows(), "adamw");
  const OpScope timed(
      context.clock, Op::Optimizer,
      bytes_of({g, m, m, v, v}) + (master.empty() ? bytes_of({w, w}) : bytes_of({w, master, master})));
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::adamw(*context.queue, step, rounding, w, g, m, v, master);
  if (gate_closed(step.gate)) return;
  AdamStep scaled = step;
  scaled.gradient_scale *= gate_factor(step.gate);
  by_types(w, g, m, [&](auto a, auto b, auto c) {
    using W = decltype(a);
    using G = decltype(b);
    using S = decltype(c);
    COMPACT_CALL(adam_update, scaled, rounding, w.as<W>(), master.f32(), g.as<const G>(), m.as<S>(),
                 v.as<S>(), w.rows(), w.cols());
  });
}

void adam_direction(Context& context, const AdamStep& step, const Rounding& rounding, const Tensor& g,
                    const Tensor& m, const Tensor& v) {
  const bool by_row = has_one_for_each_row(v, g);
  require(g.contiguous() && alike(m, g), "adam_direction", "g and m are not of one shape and contiguous");
  require(by_row || alike(v, g), "adam_direction", "v is neither like g nor [rows of g]");
  check_types(g, g, m, v, "adam_direction");
  check_rounding(rounding, g.rows(), "adam_direction");
  const OpScope timed(context.clock, Op::Optimizer, bytes_of({g, g, m, m, v, v}));
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::adam_direction(*context.queue, step, rounding, g, m, v);
  if (gate_closed(step.gate)) return;
  AdamStep scaled = step;
  scaled.gradient_scale *= gate_factor(step.gate);
  by_types(g, g, m, [&](auto, auto b, auto c) {
    using G = decltype(b);
    using S = decltype(c);
    if (by_row)
      COMPACT_CALL(adam_direction_by_row, scaled, rounding, g.as<G>(), m.as<S>(), v.as<S>(), g.rows(),
                   g.cols());
    else
      COMPACT_CALL(adam_direction, scaled, rounding, g.as<G>(), m.as<S>(), v.as<S>(), g.rows(), g.cols());
  });
}

void projected_adam(Context& context, const AdamStep& step, const Rounding& rounding, const Projection& p,
                    const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v,
                    const Tensor& master) {
  require(is_float(w) && w.contiguous(), "projected_adam", "w is not a contiguous tensor of floats");
  require(is_matrix(g, w.rows(), p.r), "projected_adam", "g is not [rows of w, r]");
  check_master(master, w, "projected_adam");
  adam_direction(context, step, rounding, g, m, v);
  expand_add(context, p, g, 1.0f - step.decay, rounding, master.empty() ? w : master, step.gate,
             master.empty() ? Tensor() : w);
}

}  // namespace compact
