#include "compact/kernels/rmsnorm.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/rmsnorm_cpu.h"
#include "kernels/rmsnorm_cuda.h"

namespace compact {

namespace {

/// Chunks of rows whose sums for dw are made apart: a function of N alone, so that the order of summation is
/// too.
std::int64_t row_chunks(std::int64_t N) { return std::clamp<std::int64_t>(N / 16, 1, 64); }

void check_norm(const char* op, const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& rstd) {
  const std::int64_t N = x.rows(), C = x.cols();
  require(is_float(x) && w.dtype == x.dtype && y.dtype == x.dtype, op,
          "x, w and y must be F32 or BF16, all the same");
  require(w.elements() == C && w.contiguous(), op, "w must be [C]");
  require(is_matrix(y, N, C), op, "x and y must have one shape");
  require(rstd.dtype == DType::F32 && rstd.elements() == N && rstd.contiguous(), op, "rstd must be [N] F32");
}

}  // namespace

void rmsnorm_forward(Context& context, const Tensor& x, const Tensor& w, float eps, const Tensor& y,
                     const Tensor& rstd) {
  check_norm("rmsnorm_forward", x, w, y, rstd);
  const OpScope timed(context.clock, Op::Norm, bytes_of({x, w, y, rstd}));
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::rmsnorm_forward(*context.queue, x, {}, {}, w, eps, y, rstd);
  by_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    COMPACT_CALL(rmsnorm_forward, x.as<T>(), x.ld, nullptr, 0, nullptr, 0, w.as<T>(), eps, y.as<T>(), y.ld,
                 rstd.f32(), x.rows(), x.cols());
  });
}

void residual_rmsnorm_forward(Context& context, const Tensor& x, const Tensor& delta, const Tensor& w,
                              float eps, const Tensor& sum, const Tensor& y, const Tensor& rstd) {
  const char* op = "residual_rmsnorm_forward";
  const std::int64_t N = x.rows(), C = x.cols();
  check_norm(op, x, w, y, rstd);
  require(delta.dtype == x.dtype && sum.dtype == x.dtype, op, "x, delta and sum must be of one type");
  require(is_matrix(delta, N, C) && is_matrix(sum, N, C), op, "x, delta and sum must have one shape");
  const OpScope timed(context.clock, Op::Norm, bytes_of({x, delta, w, sum, y, rstd}));
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::rmsnorm_forward(*context.queue, x, delta, sum, w, eps, y, rstd);
  by_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    COMPACT_CALL(rmsnorm_forward, x.as<T>(), x.ld, delta.as<T>(), delta.ld, sum.as<T>(), sum.ld, w.as<T>(),
                 eps, y.as<T>(), y.ld, rstd.f32(), N, C);
  });
}

void rmsnorm_backward(Context& context, const Tensor& dy, const Tensor& x, const Tensor& w,
                      const Tensor& rstd, const Tensor& dx, const Tensor& dw) {
  const char* op = "rmsnorm_backward";
  const std::int64_t N = x.rows(), C = x.cols();
  const std::int64_t chunks = context.on_cuda() ? cuda::rmsnorm_row_chunks(N) : row_chunks(N);
  check_norm(op, x, w, dy, rstd);
  require(dx.dtype == x.dtype && is_matrix(dx, N, C), op, "dx must be [N, C] of the type of x");
  require(is_float(dw) && dw.elements() == C && dw.contiguous(), op, "dw must be [C], F32 or BF16");
  const OpScope timed(context.clock, Op::Norm, bytes_of({dy, x, w, rstd, dx, dx, dw, dw}));
  const ScratchScope scope(context.arena);
  const Tensor partial = context.arena.scratch("rmsnorm dw partial sums", {chunks, C}, DType::F32);
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::rmsnorm_backward(*context.queue, dy, x, w, rstd, dx, partial, dw);
  by_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    COMPACT_CALL(rmsnorm_backward, dy.as<T>(), dy.ld, x.as<T>(), x.ld, w.as<T>(), rstd.f32(), dx.as<T>(),
                 dx.ld, partial.f32(), chunks, N, C);
  });
  by_type(dw.dtype, [&](auto type) {
    using T = decltype(type);
    COMPACT_CALL(rmsnorm_add_dw, partial.f32(), chunks, C, x.dtype == DType::BF16, dw.as<T>());
  });
}

}  // namespace compact
