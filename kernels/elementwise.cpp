#include "compact/kernels/elementwise.h"

#include "kernels/checks.h"
#include "kernels/elementwise_cpu.h"

namespace compact {

void zero(Context& context, const Tensor& x) {
  require_computable(context, "zero", {x});
  if (context.planning()) return;
  // Of the types that are computed here, 0 has the same bits in all.
  COMPACT_CALL(fill, x.f32(), x.ld, x.rows(), x.cols(), 0.0f);
}

void fill(Context& context, const Tensor& x, float value) {
  require(is_float(x), "fill", "x must be F32 or BF16");
  require_computable(context, "fill", {x});
  if (context.planning()) return;
  COMPACT_CALL(fill, x.f32(), x.ld, x.rows(), x.cols(), value);
}

void copy(Context& context, const Tensor& from, const Tensor& to) {
  require(is_float(from) && is_float(to), "copy", "both tensors must be F32 or BF16");
  require(is_matrix(from, to.rows(), to.cols()), "copy", "both tensors must have one shape");
  require_computable(context, "copy", {from, to});
  if (context.planning()) return;
  COMPACT_CALL(copy, from.f32(), from.ld, to.f32(), to.ld, to.rows(), to.cols());
}

void add(Context& context, const Tensor& a, const Tensor& b, const Tensor& out) {
  const std::int64_t N = out.rows(), C = out.cols();
  require(is_float(a) && is_float(b) && is_float(out), "add", "a, b and out must be F32 or BF16");
  require(is_matrix(a, N, C) && is_matrix(b, N, C), "add", "a, b and out must have one shape");
  require_computable(context, "add", {a, b, out});
  if (context.planning()) return;
  COMPACT_CALL(add, a.f32(), a.ld, b.f32(), b.ld, out.f32(), out.ld, N, C);
}

}  // namespace compact
