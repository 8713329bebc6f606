#include "compact/kernels/elementwise.h"

#include "kernels/checks.h"
#include "kernels/elementwise_cpu.h"
#include "kernels/elementwise_cuda.h"

namespace compact {

namespace {
/// A view of the same bytes that an op on floats may set to zero: 0 has the same bits in I32 as in F32, and
/// in F64 as in two F32.
Tensor zeroed_as(const Tensor& t) {
  if (t.dtype == DType::BF16) return t;
  const std::int64_t words = size_of(t.dtype) / size_of(DType::F32);
  Tensor floats(t.data, {t.rows(), words * t.cols()}, DType::F32);
  floats.ld = words * t.ld;
  return floats;
}
}  // namespace

void zero(Context& context, const Tensor& view) {
  const OpScope timed(context.clock, Op::Elementwise, bytes_of({view}));
  if (context.planning()) return;
  const Tensor x = zeroed_as(view);
  if (context.on_cuda()) return cuda::fill(*context.queue, x, 0.0f);
  by_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    COMPACT_CALL(fill, x.as<T>(), x.ld, x.rows(), x.cols(), 0.0f);
  });
}

void fill(Context& context, const Tensor& x, float value) {
  require(is_float(x), "fill", "x must be F32 or BF16");
  const OpScope timed(context.clock, Op::Elementwise, bytes_of({x}));
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::fill(*context.queue, x, value);
  by_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    COMPACT_CALL(fill, x.as<T>(), x.ld, x.rows(), x.cols(), value);
  });
}

void copy(Context& context, const Tensor& from, const Tensor& to) {
  require(is_float(from) && is_float(to), "copy", "both tensors must be F32 or BF16");
  require(is_matrix(from, to.rows(), to.cols()), "copy", "both tensors must have one shape");
  const OpScope timed(context.clock, Op::Elementwise, bytes_of({from, to}));
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::copy(*context.queue, from, to);
  by_type(from.dtype, [&](auto type) {
    by_type(to.dtype, [&](auto to_type) {
      using From = decltype(type);
      using To = decltype(to_type);
      COMPACT_CALL(copy, from.as<From>(), from.ld, to.as<To>(), to.ld, to.rows(), to.cols());
    });
  });
}

void add(Context& context, const Tensor& a, const Tensor& b, const Tensor& out) {
  const std::int64_t N = out.rows(), C = out.cols();
  require(is_float(out) && a.dtype == out.dtype && b.dtype == out.dtype, "add",
          "a, b and out must be F32 or BF16, all the same");
  require(is_matrix(a, N, C) && is_matrix(b, N, C), "add", "a, b and out must have one shape");
  const OpScope timed(context.clock, Op::Elementwise, bytes_of({a, b, out}));
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::add(*context.queue, a, b, out);
  by_type(out.dtype, [&](auto type) {
    using T = decltype(type);
    COMPACT_CALL(add, a.as<T>(), a.ld, b.as<T>(), b.ld, out.as<T>(), out.ld, N, C);
  });
}

}  // namespace compact
