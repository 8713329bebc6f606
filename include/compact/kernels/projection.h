#pragma once
#include <cstdint>
#include <string_view>

#include "compact/kernels/rounding.h"
#include "compact/memory/context.h"

namespace compact {

/// How P [n, r] is drawn (design, section 2; docs/method.md). For each kind E[P Pᵀ] = I; its noise is the
/// mean of |P Pᵀ G - G|² / |G|² for a fixed G. All words are those of Philox with the seed as key and the
/// counters (block, row, window, stream projection << 24 | id).
enum class ProjectionKind {
  /// i.i.d. N(0, 1/r): element (i, j) is deviate j mod 4 of block j / 4 of row i. Noise (n + 1) / r.
  Gaussian,
  /// Q of the Householder QR, in double and with a positive diagonal of R, of the gaussian one, its columns
  /// scaled by sqrt(n/r). r is at most n. Noise n/r - 1.
  Orthonormal,
  /// Subsampled randomized Hadamard transform: z = sqrt(s/r) (H D x)[S], H the normalised Sylvester-Hadamard
  /// matrix of size s, the power of two that n is padded to with zeros; D the signs of the inputs (bit i of
  /// row 0's words), S a sample of r of its s rows without replacement (Fisher-Yates with row 1's words). So
  /// every element is ±1/sqrt(r). r is at most n. Noise (n - 1)(s - r) / (r (s - 1)). Applied as a transform,
  /// O(s log s) for a row of x or w; P is never made.
  Hadamard,
  /// Sparse Johnson-Lindenstrauss (Kane and Nelson 2014, the block construction): each row has four elements
  /// ±1/2, one in each quarter of the columns, place and sign from one word of block 0 of its row; with r
  /// below four a single ±1. Rows have length 1, so the noise is that of their products only: (n - 1) / 16
  /// times the sum of 1/size over the quarters, which is (n - 1) / r where 4 divides r, and where r < 4.
  /// Applied as 4n additions for a row of x or w; P is never made.
  Sparse,
};
/// Throws InputError for an unknown name.
ProjectionKind projection_kind_from(std::string_view name);

/// Names one random matrix P [n, r] exactly: a function of the kind and of the Philox counters made of seed,
/// id and window, the same on every device and rank.
struct Projection {
  ProjectionKind kind = ProjectionKind::Gaussian;
  std::uint64_t seed = 0;
  std::uint32_t id = 0;      ///< of the weight, or of the group that shares P
  std::uint32_t window = 0;  ///< update / update_gap
  std::int64_t n = 0;        ///< input width
  std::int64_t r = 0;        ///< projected width
  /// BF16: the elements of P are rounded to it wherever P is used, beside fp32 operands too. Those of sparse
  /// have no error, all of hadamard's the same one: E[P Pᵀ] is then I to 1 part in 256.
  DType dtype = DType::F32;
  /// Orthonormal only, [n, r] of dtype: P of this window as made by `prepare_projection`. All other kinds are
  /// made anew at each use and store nothing.
  Tensor matrix = {};
};

/// True if the kind keeps its P in memory for a window.
constexpr bool keeps_matrix(ProjectionKind kind) { return kind == ProjectionKind::Orthonormal; }

/// Writes P of p.window into p.matrix. Only for kinds that keep it. Scratch: n·r doubles. The same bits on
/// every instruction set.
void prepare_projection(Context& context, const Projection& p);

/// Rows [begin, begin + tile.rows()) of P into tile [rows, r]. Here and below only a P of BF16 goes into, or
/// with, BF16 tensors.
void projection_rows(Context& context, const Projection& p, std::int64_t begin, const Tensor& tile);

/// z [N, r] = x [N, n] · P, by products with slices of P or by the kind's transform. An fp32 x gives an fp32
/// z; a BF16 z is rounded once. No temporary of the size of P.
void project(Context& context, const Projection& p, const Tensor& x, const Tensor& z);

/// w [m, n] = kept · w + d [m, r] · Pᵀ; a BF16 w is rounded once, as `rounding` says for its rows and
/// columns. Products for a BF16 w take d rounded to P's type. No temporary of the size of w. Where `gate` is
/// given and gate[1] is 0, w stays as it is (compact/kernels/update_gate.h). Where `nearest` [m, n] is not
/// empty, w is a master weight and `nearest` becomes its nearest values.
void expand_add(Context& context, const Projection& p, const Tensor& d, float kept, const Rounding& rounding,
                const Tensor& w, const float* gate = nullptr, const Tensor& nearest = {});

/// Carries a compressed moment from one projection to another of the same n and r:
/// M [m, r] (F32 or BF16) becomes scale · M · (oldᵀ new), the transpose of P_newᵀ (P_old Mᵀ) (design, section
/// 2). No temporary of the size of P or of the weight but [r, r] and a copy of some rows of M.
void transport_moment(Context& context, const Projection& old_p, const Projection& new_p, float scale,
                      const Tensor& moment);

}  // namespace compact
