#include "compact/kernels/swiglu.h"

#include "kernels/checks.h"
#include "kernels/swiglu_cpu.h"

namespace compact {

namespace {

/// `small` is out or dout [N, F].
void check_swiglu(Context& context, const char* op, const Tensor& gate_up, const Tensor& small,
                  const Tensor& activation) {
  require(is_float(gate_up) && is_float(small), op, "tensors must be F32 or BF16");
  require(is_matrix(gate_up, small.rows(), 2 * small.cols()), op, "gate_up must be [N, 2F] for [N, F]");
  require(activation.empty() || (is_float(activation) && is_matrix(activation, small.rows(), small.cols())),
          op, "activation must be [N, F] or empty");
  require_computable(context, op, {gate_up, small, activation});
}

}  // namespace

void swiglu_forward(Context& context, const Tensor& gate_up, const Tensor& out, const Tensor& activation) {
  check_swiglu(context, "swiglu_forward", gate_up, out, activation);
  if (context.planning()) return;
  COMPACT_CALL(swiglu_forward, gate_up.f32(), gate_up.ld, out.f32(), out.ld, activation.f32(), activation.ld,
               out.rows(), out.cols());
}

void swiglu_backward(Context& context, const Tensor& gate_up, const Tensor& activation, const Tensor& dout,
                     const Tensor& dgate_up) {
  check_swiglu(context, "swiglu_backward", gate_up, dout, activation);
  require(is_float(dgate_up) && is_matrix(dgate_up, dout.rows(), 2 * dout.cols()), "swiglu_backward",
          "dgate_up must be [N, 2F]");
  require_computable(context, "swiglu_backward", {dgate_up});
  if (context.planning()) return;
  COMPACT_CALL(swiglu_backward, gate_up.f32(), gate_up.ld, activation.f32(), activation.ld, dout.f32(),
               dout.ld, dgate_up.f32(), dgate_up.ld, dout.rows(), dout.cols());
}

}  // namespace compact
