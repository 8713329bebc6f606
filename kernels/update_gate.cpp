#include "compact/kernels/update_gate.h"

#include "kernels/checks.h"
#include "kernels/gate_rule.h"
#include "kernels/update_gate_cuda.h"

namespace compact {

namespace {

bool is_one(const Tensor& t, DType type) { return t.dtype == type && t.elements() == 1; }

void check_gate(const char* op, const Tensor& squares, const Tensor& gate) {
  require(is_one(squares, DType::F64), op, "squares must be one F64");
  require(gate.dtype == DType::F32 && gate.elements() == 3 && gate.contiguous(), op, "gate must be [3] F32");
}

}  // namespace

void add_sum(Context& context, const Tensor& x, const Tensor& total) {
  require(x.dtype == DType::F32 && x.contiguous(), "add_sum", "x must be F32 and contiguous");
  require(is_one(total, DType::F64), "add_sum", "total must be one F64");
  const OpScope timed(context.clock, Op::Elementwise, bytes_of({x, total, total}));
  const ScratchScope scope(context.arena);
  Tensor partial;
  if (context.on_cuda())
    partial = context.arena.scratch("partial sums", {cuda::add_sum_pieces(x.elements())}, DType::F64);
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::add_sum(*context.queue, x, partial, total);
  double sum = *total.as<double>();
  for (std::int64_t i = 0; i < x.elements(); ++i) sum += static_cast<double>(x.f32()[i]);
  *total.as<double>() = sum;
}

void open_gate(Context& context, const Tensor& squares, const Tensor& gate) {
  check_gate("open_gate", squares, gate);
  const OpScope timed(context.clock, Op::GlobalNorm, bytes_of({squares, gate}));
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::open_gate(*context.queue, squares, gate);
  *squares.as<double>() = 0;
  gate.f32()[0] = gate.f32()[1] = 1;
  gate.f32()[2] = 0;
}

void update_gate(Context& context, const Tensor& loss_total, const Tensor& norm, double max_norm,
                 const Tensor& squares, const Tensor& gate) {
  check_gate("update_gate", squares, gate);
  require(is_one(loss_total, DType::F64), "update_gate", "loss_total must be one F64");
  require(is_one(norm, DType::F32), "update_gate", "norm must be one F32");
  require(max_norm >= 0, "update_gate", "max_norm must not be negative");
  const OpScope timed(context.clock, Op::GlobalNorm,
                      bytes_of({loss_total, norm, squares, squares, gate, gate}));
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::update_gate(*context.queue, loss_total, norm, max_norm, squares, gate);
  judge(*loss_total.as<double>(), static_cast<double>(*norm.f32()), max_norm, squares.as<double>(),
        gate.f32());
}

}  // namespace compact
