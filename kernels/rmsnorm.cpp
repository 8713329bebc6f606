#include "compact/kernels/rmsnorm.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/rmsnorm_cpu.h"

namespace compact {

namespace {

/// Chunks of rows whose sums for dw are made apart: a function of N alone, so that the order of summation is
/// too.
std::int64_t row_chunks(std::int64_t N) { return std::clamp<std::int64_t>(N / 16, 1, 64); }

void check_norm(const char* op, const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& rstd) {
  const std::int64_t N = x.rows(), C = x.cols();
  require(is_float(x) && is_float(w) && is_float(y), op, "x, w and y must be F32 or BF16");
  require(w.elements() == C && w.contiguous(), op, "w must be [C]");
  require(is_matrix(y, N, C), op, "x and y must have one shape");
  require(rstd.dtype == DType::F32 && rstd.elements() == N && rstd.contiguous(), op, "rstd must be [N] F32");
}

}  // namespace

void rmsnorm_forward(Context& context, const Tensor& x, const Tensor& w, float eps, const Tensor& y,
                     const Tensor& rstd) {
  check_norm("rmsnorm_forward", x, w, y, rstd);
  require_computable(context, "rmsnorm_forward", {x, w, y});
  if (context.planning()) return;
  COMPACT_CALL(rmsnorm_forward, x.f32(), x.ld, nullptr, 0, nullptr, 0, w.f32(), eps, y.f32(), y.ld,
               rstd.f32(), x.rows(), x.cols());
}

void residual_rmsnorm_forward(Context& context, const Tensor& x, const Tensor& delta, const Tensor& w,
                              float eps, const Tensor& sum, const Tensor& y, const Tensor& rstd) {
  const char* op = "residual_rmsnorm_forward";
  const std::int64_t N = x.rows(), C = x.cols();
  check_norm(op, x, w, y, rstd);
  require(is_float(delta) && is_float(sum), op, "delta and sum must be F32 or BF16");
  require(is_matrix(delta, N, C) && is_matrix(sum, N, C), op, "x, delta and sum must have one shape");
  require_computable(context, op, {x, delta, w, sum, y});
  if (context.planning()) return;
  COMPACT_CALL(rmsnorm_forward, x.f32(), x.ld, delta.f32(), delta.ld, sum.f32(), sum.ld, w.f32(), eps,
               y.f32(), y.ld, rstd.f32(), N, C);
}

void rmsnorm_backward(Context& context, const Tensor& dy, const Tensor& x, const Tensor& w,
                      const Tensor& rstd, const Tensor& dx, const Tensor& dw) {
  const char* op = "rmsnorm_backward";
  const std::int64_t N = x.rows(), C = x.cols(), chunks = row_chunks(N);
  check_norm(op, x, w, dy, rstd);
  require(is_float(dx) && is_matrix(dx, N, C), op, "dx must be [N, C], F32 or BF16");
  require(is_float(dw) && dw.elements() == C && dw.contiguous(), op, "dw must be [C], F32 or BF16");
  require_computable(context, op, {dy, x, w, dx, dw});
  const ScratchScope scope(context.arena);
  const Tensor partial = context.arena.scratch("rmsnorm dw partial sums", {chunks, C}, DType::F32);
  if (context.planning()) return;
  COMPACT_CALL(rmsnorm_backward, dy.f32(), dy.ld, x.f32(), x.ld, w.f32(), rstd.f32(), dx.f32(), dx.ld,
               partial.f32(), chunks, dw.f32(), N, C);
}

}  // namespace compact
