#include <algorithm>

#include "compact/kernels/elementwise.h"
#include "compact/kernels/gemm.h"
#include "kernels/checks.h"
#include "kernels/projection_cpu.h"
#include "kernels/projection_kinds.h"

namespace compact {

namespace {
/// A slice of P stays in cache from its making to its use in the product.
constexpr std::int64_t kSliceBytes = std::int64_t{1} << 20;
/// Of a bf16 weight's change, in fp32.
constexpr std::int64_t kChangeBytes = std::int64_t{2} << 20;
/// Tokens whose bf16 z is summed over slices in fp32: enough of them that making P again costs little.
constexpr std::int64_t kSummedTokens = 4096;

std::int64_t slice_rows(const Projection& p, DType dtype) {
  const std::int64_t fit = kSliceBytes / (p.r * size_of(dtype));
  return std::min(std::max<std::int64_t>(fit / 16 * 16, 16), p.n);
}
}  // namespace

Slices::Slices(Context& context, const Projection& p, DType dtype)
    : p_(p), kept_(keeps_matrix(p.kind) && p.dtype == dtype), step_(slice_rows(p, dtype)) {
  if (!kept_) slice_ = context.arena.scratch("projection slice", {step_, p.r}, dtype);
}

Tensor Slices::rows(Context& context, std::int64_t begin) const {
  const std::int64_t count = std::min(step_, p_.n - begin);
  if (kept_) return p_.matrix.row_range(begin, count);
  const Tensor part = slice_.row_range(0, count);
  projection_rows(context, p_, begin, part);
  return part;
}

void dense_project(Context& context, const Projection& p, const Tensor& x, const Tensor& z) {
  if (keeps_matrix(p.kind) && x.dtype == p.dtype) {
    gemm(context, x, Transpose::No, p.matrix, Transpose::No, z, false);
    return;
  }
  const ScratchScope scope(context.arena);
  const Slices slices(context, p, x.dtype);
  // A bf16 z is rounded once, not once a slice.
  const bool summed = z.dtype == DType::BF16 && slices.step() < p.n;
  const std::int64_t N = x.rows(), step = summed ? std::min(kSummedTokens, N) : N;
  Tensor sum;
  if (summed) sum = context.arena.scratch("projection sum", {step, p.r}, DType::F32);
  for (std::int64_t first = 0; first < N; first += step) {
    const std::int64_t count = std::min(step, N - first);
    const Tensor part = z.row_range(first, count), to = summed ? sum.row_range(0, count) : part;
    for (std::int64_t begin = 0; begin < p.n; begin += slices.step()) {
      const Tensor rows = slices.rows(context, begin);
      gemm(context, x.row_range(first, count).columns(begin, rows.rows()), Transpose::No, rows, Transpose::No,
           to, begin > 0);
    }
    if (summed) copy(context, sum.row_range(0, count), part);
  }
}

void dense_expand(Context& context, const Projection& p, const Tensor& d, float kept,
                  const Rounding& rounding, const Tensor& w, const float* gate) {
  if (!context.on_cuda() && !context.planning() && is_closed(gate)) return;
  const ScratchScope scope(context.arena);
  if (w.dtype == DType::F32) {
    if (kept != 1.0f) {
      const OpScope timed(context.clock, Op::Optimizer, 2 * w.bytes());
      if (!context.planning()) COMPACT_CALL(scale_rows, w.f32(), w.ld, w.rows(), p.n, kept);
    }
    const Slices slices(context, p, d.dtype);
    for (std::int64_t begin = 0; begin < p.n; begin += slices.step()) {
      const Tensor rows = slices.rows(context, begin);
      gemm(context, d, Transpose::No, rows, Transpose::Yes, w.columns(begin, rows.rows()), true);
    }
    return;
  }
  Tensor operand = d;
  if (d.dtype != p.dtype) {
    operand = context.arena.scratch("rounded direction", {d.rows(), p.r}, p.dtype);
    copy(context, d, operand);
  }
  const Slices slices(context, p, operand.dtype);
  const std::int64_t fit = kChangeBytes / (slices.step() * size_of(DType::F32));
  const std::int64_t step = std::min(std::max<std::int64_t>(fit / 16 * 16, 16), d.rows());
  const Tensor change = context.arena.scratch("change of a weight", {step, slices.step()}, DType::F32);
  for (std::int64_t begin = 0; begin < p.n; begin += slices.step()) {
    const Tensor rows = slices.rows(context, begin);
    for (std::int64_t first = 0; first < d.rows(); first += step) {
      const std::int64_t count = std::min(step, d.rows() - first);
      // The block of w [count, columns of this slice] and its change.
      const Tensor to = w.row_range(first, count).columns(begin, rows.rows()),
                   by = change.row_range(0, count).columns(0, rows.rows());
      gemm(context, operand.row_range(first, count), Transpose::No, rows, Transpose::Yes, by, false);
      const OpScope timed(context.clock, Op::Optimizer, by.bytes() + 2 * to.bytes());
      if (context.planning()) continue;
      COMPACT_CALL(add_change, to.as<Bf16>(), to.ld, by.f32(), by.ld, count, to.cols(), kept, rounding, first,
                   begin);
    }
  }
}

void transport_moment(Context& context, const Projection& old_p, const Projection& new_p, float scale,
                      const Tensor& moment) {
  const char* op = "transport_moment";
  check_projection(old_p, op);
  check_projection(new_p, op);
  require(old_p.n == new_p.n && old_p.r == new_p.r && old_p.dtype == new_p.dtype, op,
          "the projections differ in size or type");
  require(is_float(moment) && moment.cols() == old_p.r, op, "the moment [m, r] has not the width of P");
  const std::int64_t r = old_p.r, m = moment.rows();
  const ScratchScope scope(context.arena);
  const Tensor carry = context.arena.scratch("moment transport", {r, r}, DType::F32);
  {
    const ScratchScope slice_scope(context.arena);
    const Slices from(context, old_p, old_p.dtype), to(context, new_p, new_p.dtype);
    for (std::int64_t begin = 0; begin < old_p.n; begin += from.step()) {
      const Tensor old_rows = from.rows(context, begin), new_rows = to.rows(context, begin);
      gemm(context, old_rows, Transpose::Yes, new_rows, Transpose::No, carry, begin > 0);
    }
  }
  const std::int64_t fit = kChangeBytes / (r * size_of(DType::F32));
  const std::int64_t step = std::min(std::max<std::int64_t>(fit / 16 * 16, 16), m);
  const Tensor before = context.arena.scratch("moment rows", {step, r}, DType::F32);
  Tensor after;
  if (moment.dtype == DType::BF16) after = context.arena.scratch("moment rows", {step, r}, DType::F32);
  const OpScope timed(context.clock, Op::Optimizer, 2 * moment.bytes());
  if (!context.planning()) COMPACT_CALL(scale_rows, carry.f32(), r, r, r, scale);
  for (std::int64_t first = 0; first < m; first += step) {
    const std::int64_t count = std::min(step, m - first);
    const Tensor part = moment.row_range(first, count), old_part = before.row_range(0, count);
    copy(context, part, old_part);
    const Tensor to = after.empty() ? part : after.row_range(0, count);
    gemm(context, old_part, Transpose::No, carry, Transpose::No, to, false);
    if (!after.empty()) copy(context, to, part);
  }
}

}  // namespace compact
