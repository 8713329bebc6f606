#include "compact/kernels/projection.h"

#include <algorithm>
#include <cmath>

#include "compact/core/philox.h"
#include "compact/kernels/gemm.h"
#include "kernels/checks.h"
#include "kernels/normal_cpu.h"

namespace compact {

namespace {
/// A slice of P stays in the second-level cache from its making to its use in the GEMM.
constexpr std::int64_t kSliceBytes = std::int64_t{1} << 20;

/// Rows of P in one slice: whole multiples of 16 where possible, which GEMM's inner dimension likes.
std::int64_t slice_rows(const Projection& p) {
  const std::int64_t fit = kSliceBytes / (p.r * size_of(DType::F32));
  const std::int64_t rows = fit >= 16 ? fit / 16 * 16 : std::max<std::int64_t>(fit, 1);
  return std::min(rows, p.n);
}

void check(const Projection& p, const char* op) {
  require(p.n >= 1 && p.r >= 1, op, "a projection of no rows or columns");
  require(p.id < 1u << 24, op, "an id has 24 bits");
  // Row and block of four columns are one counter word each.
  require(p.n <= UINT32_MAX && p.r / 4 < UINT32_MAX, op, "too large for the counter");
}
}  // namespace

void projection_rows(Context& context, const Projection& p, std::int64_t begin, const Tensor& tile) {
  check(p, "projection_rows");
  require(is_float(tile), "projection_rows", "not a tensor of floats");
  require(tile.cols() == p.r, "projection_rows", "the tile has not the width of P");
  require(begin >= 0 && begin + tile.rows() <= p.n, "projection_rows", "rows out of range");
  require_computable(context, "projection_rows", {tile});
  if (context.planning()) return;
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.r)));
  COMPACT_CALL(normal_rows, tile.f32(), tile.ld, begin, tile.rows(), p.r, scale, p.seed, p.window,
               stream_word(Stream::Projection, p.id));
}

void project(Context& context, const Projection& p, const Tensor& x, const Tensor& z) {
  check(p, "project");
  require(is_float(x) && is_float(z), "project", "not tensors of floats");
  require(x.cols() == p.n, "project", "x [N, n] has not the rows of P as its width");
  require(is_matrix(z, x.rows(), p.r), "project", "z is not [N, r]");
  require_computable(context, "project", {x, z});
  ScratchScope scope(context.arena);
  const std::int64_t rows = slice_rows(p);
  // P has the type of x: in bf16 its rounded values are the ones used everywhere.
  const Tensor slice = context.arena.scratch("projection slice", {rows, p.r}, x.dtype);
  for (std::int64_t begin = 0; begin < p.n; begin += rows) {
    const Tensor part = slice.row_range(0, std::min(rows, p.n - begin));
    projection_rows(context, p, begin, part);
    gemm(context, x.columns(begin, part.rows()), Transpose::No, part, Transpose::No, z, begin > 0);
  }
}

void expand_add(Context& context, const Projection& p, const Tensor& d, const Tensor& w) {
  check(p, "expand_add");
  require(is_float(d) && is_float(w), "expand_add", "not tensors of floats");
  require(d.cols() == p.r, "expand_add", "d [m, r] has not the width of P");
  require(is_matrix(w, d.rows(), p.n), "expand_add", "w is not [m, n]");
  require_computable(context, "expand_add", {d, w});
  ScratchScope scope(context.arena);
  const std::int64_t rows = slice_rows(p);
  const Tensor slice = context.arena.scratch("projection slice", {rows, p.r}, d.dtype);
  for (std::int64_t begin = 0; begin < p.n; begin += rows) {
    const Tensor part = slice.row_range(0, std::min(rows, p.n - begin));
    projection_rows(context, p, begin, part);
    gemm(context, d, Transpose::No, part, Transpose::Yes, w.columns(begin, part.rows()), true);
  }
}

}  // namespace compact
