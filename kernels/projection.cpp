#include "compact/kernels/projection.h"

#include <cmath>

#include "compact/core/philox.h"
#include "compact/kernels/elementwise.h"
#include "kernels/checks.h"
#include "kernels/gate_rule.h"
#include "kernels/normal_cpu.h"
#include "kernels/normal_cuda.h"
#include "kernels/projection_cpu.h"
#include "kernels/projection_kinds.h"

namespace compact {

namespace {
/// P is what its type says, wherever it is used.
void check_types(const Projection& p, const char* op, const Tensor& used) {
  require(used.dtype == DType::F32 || p.dtype == DType::BF16, op, "BF16 operands want a P of BF16");
}

void gaussian_rows(Context& context, const Projection& p, std::int64_t begin, const Tensor& tile) {
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.r)));
  const std::uint32_t stream = stream_word(Stream::Projection, p.id);
  const bool through_bf16 = p.dtype == DType::BF16 && tile.dtype == DType::F32;
  if (context.on_cuda())
    return cuda::normal_rows(*context.queue, tile, begin, scale, p.seed, p.window, stream, through_bf16);
  by_type(tile.dtype, [&](auto type) {
    COMPACT_CALL(normal_rows, tile.as<decltype(type)>(), tile.ld, begin, tile.rows(), p.r, scale, p.seed,
                 p.window, stream);
  });
  if (through_bf16) COMPACT_CALL(round_rows, tile.f32(), tile.ld, tile.rows(), p.r);
}
}  // namespace

ProjectionKind projection_kind_from(std::string_view name) {
  if (name == "gaussian") return ProjectionKind::Gaussian;
  if (name == "orthonormal") return ProjectionKind::Orthonormal;
  if (name == "hadamard") return ProjectionKind::Hadamard;
  if (name == "sparse") return ProjectionKind::Sparse;
  input_error(
      "compact.projection: no projection \"{}\"; there are gaussian, orthonormal, hadamard and sparse", name);
}

void check_projection(const Projection& p, const char* op) {
  require(p.n >= 1 && p.r >= 1, op, "a projection of no rows or columns");
  require(p.id < 1u << 24, op, "an id has 24 bits");
  // Row and block of four columns are one counter word each, and indices are kept with a sign bit.
  require(p.n <= INT32_MAX && p.r <= INT32_MAX, op, "too large for the counter");
  require(p.dtype == DType::F32 || p.dtype == DType::BF16, op, "P must be F32 or BF16");
  const bool at_most_n = p.kind == ProjectionKind::Orthonormal || p.kind == ProjectionKind::Hadamard;
  require(!at_most_n || p.r <= p.n, op, "this kind has at most as many columns as rows");
  if (!keeps_matrix(p.kind)) return;
  require(is_matrix(p.matrix, p.n, p.r) && p.matrix.dtype == p.dtype, op,
          "the kept matrix is not [n, r] of P's type");
}

void projection_rows(Context& context, const Projection& p, std::int64_t begin, const Tensor& tile) {
  const char* op = "projection_rows";
  check_projection(p, op);
  require(is_float(tile), op, "not a tensor of floats");
  check_types(p, op, tile);
  require(tile.cols() == p.r, op, "the tile has not the width of P");
  require(begin >= 0 && begin + tile.rows() <= p.n, op, "rows out of range");
  const OpScope timed(context.clock, Op::Projection, bytes_of({tile}));
  switch (p.kind) {
    case ProjectionKind::Gaussian:
      if (!context.planning()) gaussian_rows(context, p, begin, tile);
      return;
    case ProjectionKind::Orthonormal:
      return copy(context, p.matrix.row_range(begin, tile.rows()), tile);
    case ProjectionKind::Hadamard:
      return hadamard_rows(context, p, begin, tile);
    case ProjectionKind::Sparse:
      return sparse_rows(context, p, begin, tile);
  }
}

void project(Context& context, const Projection& p, const Tensor& x, const Tensor& z) {
  const char* op = "project";
  check_projection(p, op);
  require(is_float(x) && is_float(z), op, "not tensors of floats");
  require(x.dtype == DType::BF16 || z.dtype == DType::F32, op, "z of F32 x is F32");
  check_types(p, op, x);
  require(x.cols() == p.n, op, "x [N, n] has not the rows of P as its width");
  require(is_matrix(z, x.rows(), p.r), op, "z is not [N, r]");
  if (p.kind == ProjectionKind::Hadamard) return hadamard_project(context, p, x, z);
  if (p.kind == ProjectionKind::Sparse) return sparse_project(context, p, x, z);
  dense_project(context, p, x, z);
}

void expand_add(Context& context, const Projection& p, const Tensor& d, float kept, const Rounding& rounding,
                const Tensor& w, const float* gate, const Tensor& nearest) {
  const char* op = "expand_add";
  check_projection(p, op);
  require(is_float(d) && is_float(w), op, "not tensors of floats");
  check_types(p, op, d);
  require(d.cols() == p.r, op, "d [m, r] has not the width of P");
  require(is_matrix(w, d.rows(), p.n), op, "w is not [m, n]");
  check_rounding(rounding, w.rows(), op);
  require(nearest.empty() || (is_float(nearest) && is_matrix(nearest, w.rows(), w.cols())), op,
          "the nearest values are not like w");
  if (!context.on_cuda() && !context.planning() && gate_closed(gate)) return;
  const bool dense = p.kind == ProjectionKind::Gaussian || p.kind == ProjectionKind::Orthonormal;
  if (context.on_cuda() && dense && nearest.dtype == DType::BF16)  // both in one pass
    return dense_expand(context, p, d, kept, rounding, w, gate, nearest);
  if (dense)
    dense_expand(context, p, d, kept, rounding, w, gate);
  else if (p.kind == ProjectionKind::Hadamard)
    hadamard_expand(context, p, d, kept, rounding, w, gate);
  else
    sparse_expand(context, p, d, kept, rounding, w, gate);
  if (!nearest.empty()) copy(context, w, nearest);
}

}  // namespace compact
