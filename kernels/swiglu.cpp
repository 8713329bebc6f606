#include "compact/kernels/swiglu.h"

#include "kernels/checks.h"
#include "kernels/swiglu_cpu.h"
#include "kernels/swiglu_cuda.h"

namespace compact {

namespace {

/// `small` is out or dout [N, F].
void check_swiglu(const char* op, const Tensor& gate_up, const Tensor& small, const Tensor& activation) {
  require(is_float(gate_up) && small.dtype == gate_up.dtype, op, "tensors must be F32 or BF16, all the same");
  require(is_matrix(gate_up, small.rows(), 2 * small.cols()), op, "gate_up must be [N, 2F] for [N, F]");
  require(activation.empty() ||
              (activation.dtype == gate_up.dtype && is_matrix(activation, small.rows(), small.cols())),
          op, "activation must be [N, F] of the type of gate_up, or empty");
}

std::int64_t bytes_if_any(const Tensor& t) { return t.empty() ? 0 : t.bytes(); }

}  // namespace

void swiglu_forward(Context& context, const Tensor& gate_up, const Tensor& out, const Tensor& activation) {
  check_swiglu("swiglu_forward", gate_up, out, activation);
  const OpScope timed(context.clock, Op::Swiglu, bytes_of({gate_up, out}) + bytes_if_any(activation));
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::swiglu_forward(*context.queue, gate_up, out, activation);
  by_type(out.dtype, [&](auto type) {
    using T = decltype(type);
    COMPACT_CALL(swiglu_forward, gate_up.as<T>(), gate_up.ld, out.as<T>(), out.ld, activation.as<T>(),
                 activation.ld, out.rows(), out.cols());
  });
}

void swiglu_backward(Context& context, const Tensor& gate_up, const Tensor& activation, const Tensor& dout,
                     const Tensor& dgate_up, const Tensor& product) {
  check_swiglu("swiglu_backward", gate_up, dout, activation);
  require(dgate_up.dtype == dout.dtype && is_matrix(dgate_up, dout.rows(), 2 * dout.cols()),
          "swiglu_backward", "dgate_up must be [N, 2F] of the type of gate_up");
  require(product.empty() || (product.dtype == dout.dtype && is_matrix(product, dout.rows(), dout.cols())),
          "swiglu_backward", "product must be [N, F] of the type of gate_up, or empty");
  const OpScope timed(context.clock, Op::Swiglu,
                      bytes_of({gate_up, dout, dgate_up}) + bytes_if_any(activation) + bytes_if_any(product));
  if (context.planning()) return;
  if (context.on_cuda())
    return cuda::swiglu_backward(*context.queue, gate_up, activation, dout, dgate_up, product);
  by_type(dout.dtype, [&](auto type) {
    using T = decltype(type);
    COMPACT_CALL(swiglu_backward, gate_up.as<T>(), gate_up.ld, activation.as<T>(), activation.ld,
                 dout.as<T>(), dout.ld, dgate_up.as<T>(), dgate_up.ld, product.as<T>(), product.ld,
                 dout.rows(), dout.cols());
  });
}

}  // namespace compact
