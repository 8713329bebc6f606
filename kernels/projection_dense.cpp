#include <algorithm>

#include "compact/kernels/elementwise.h"
#include "compact/kernels/gemm.h"
#include "kernels/checks.h"
#include "kernels/elementwise_cuda.h"
#include "kernels/projection_cpu.h"
#include "kernels/projection_cuda.h"
#include "kernels/projection_kinds.h"

namespace compact {

namespace {
/// A slice of P stays in cache from its making to its use in the product.
constexpr std::int64_t kSliceBytes = std::int64_t{1} << 20;
/// Of a bf16 weight's change, in fp32.
constexpr std::int64_t kChangeBytes = std::int64_t{2} << 20;
/// Tokens whose bf16 z is summed over slices in fp32: enough of them that making P again costs little.
constexpr std::int64_t kSummedTokens = 4096;

/// A CUDA device makes P whole for a product with many tokens, where it is not larger than this: P costs a
/// few per cent of the product, and fp32 sums over slices would be more traffic than it.
constexpr std::int64_t kWholeOnCuda = std::int64_t{64} << 20;
/// Of a moment's rows in fp32, on a CUDA device.
constexpr std::int64_t kMomentOnCuda = std::int64_t{16} << 20;

/// As many rows of `row_bytes` as fit in `bytes`: a multiple of `unit`, which is the least, but at most
/// `rows`.
std::int64_t rows_that_fit(std::int64_t bytes, std::int64_t row_bytes, std::int64_t unit, std::int64_t rows) {
  return std::min(std::max(bytes / row_bytes / unit * unit, unit), rows);
}
}  // namespace

Slices::Slices(Context& context, const Projection& p, DType dtype, std::int64_t cuda_bytes)
    : p_(p), kept_(keeps_matrix(p.kind) && p.dtype == dtype) {
  // Rows that start at vectors, for the kernels and libraries of a CUDA device.
  const std::int64_t width = context.on_cuda() ? (p.r + 7) / 8 * 8 : p.r;
  step_ = context.on_cuda() ? rows_that_fit(cuda_bytes, width * size_of(dtype), 128, p.n)
                            : rows_that_fit(kSliceBytes, width * size_of(dtype), 16, p.n);
  if (!kept_) slice_ = context.arena.scratch("projection slice", {step_, width}, dtype).columns(0, p.r);
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
  if (context.on_cuda() && x.dtype == DType::BF16 && cuda::projects_on_the_fly(p, x.rows())) {
    context.flops.gemm += 2 * x.rows() * p.n * p.r;
    const OpScope timed(context.clock, Op::Projection, bytes_of({x, z}));
    if (!context.planning()) cuda::project(*context.queue, p, x, z);
    return;
  }
  const ScratchScope scope(context.arena);
  const Slices slices(context, p, x.dtype, kWholeOnCuda);
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

namespace {
/// One pass over w, whatever the types, with P on the fly or made once in slices.
void expand_on_cuda(Context& context, const Projection& p, const Tensor& d, float kept,
                    const Rounding& rounding, const Tensor& w, const float* gate, const Tensor& nearest) {
  context.flops.gemm += 2 * d.rows() * p.n * p.r;
  const auto expand = [&](const Tensor& rows_of_p, std::int64_t begin, std::int64_t count) {
    const Tensor to = w.columns(begin, count),
                 copied = nearest.empty() ? nearest : nearest.columns(begin, count);
    const OpScope timed(context.clock, Op::Optimizer, bytes_of({d, rows_of_p, to, to, copied}));
    if (!context.planning())
      cuda::expand_add(*context.queue, p, rows_of_p, d, kept, rounding, gate, begin, to, copied);
  };
  if (cuda::expands_on_the_fly(p, d.rows())) return expand({}, 0, p.n);
  const ScratchScope scope(context.arena);
  const Slices slices(context, p, w.dtype == DType::BF16 ? p.dtype : d.dtype);
  for (std::int64_t begin = 0; begin < p.n; begin += slices.step()) {
    const Tensor rows = slices.rows(context, begin);
    expand(rows, begin, rows.rows());
  }
}
}  // namespace

void dense_expand(Context& context, const Projection& p, const Tensor& d, float kept,
                  const Rounding& rounding, const Tensor& w, const float* gate, const Tensor& nearest) {
  if (context.on_cuda()) return expand_on_cuda(context, p, d, kept, rounding, w, gate, nearest);
  require(nearest.empty(), "expand_add", "master weights are copied apart");
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
  const std::int64_t step = rows_that_fit(kChangeBytes, slices.step() * size_of(DType::F32), 16, d.rows());
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
  const std::int64_t step =
      rows_that_fit(context.on_cuda() ? kMomentOnCuda : kChangeBytes, r * size_of(DType::F32), 16, m);
  const Tensor before = context.arena.scratch("moment rows", {step, r}, DType::F32);
  Tensor after;
  if (moment.dtype == DType::BF16) after = context.arena.scratch("moment rows", {step, r}, DType::F32);
  const OpScope timed(context.clock, Op::Optimizer, 2 * moment.bytes());
  if (!context.planning()) {
    if (context.on_cuda())
      cuda::scale(*context.queue, carry, scale);
    else
      COMPACT_CALL(scale_rows, carry.f32(), r, r, r, scale);
  }
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
