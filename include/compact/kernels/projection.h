#pragma once
#include <cstdint>

#include "compact/memory/context.h"

namespace compact {

enum class ProjectionKind { Gaussian };

/// Names one random matrix P [n, r] exactly: i.i.d. N(0, 1/r), element (i, j) from Philox with key `seed` and
/// counter (j / 4, i, window, stream projection << 24 | id) (design, section 2). P is never stored.
struct Projection {
  ProjectionKind kind = ProjectionKind::Gaussian;
  std::uint64_t seed = 0;
  std::uint32_t id = 0;      ///< of the weight, or of the group that shares P
  std::uint32_t window = 0;  ///< update / update_gap
  std::int64_t n = 0;        ///< input width
  std::int64_t r = 0;        ///< projected width
};

/// rows [begin, begin + tile.rows()) of P into tile [rows, r] (F32).
void projection_rows(Context& context, const Projection& p, std::int64_t begin, const Tensor& tile);

/// z [N, r] = x [N, n] · P. P is made in slices of rows that fit a fixed number of bytes of scratch.
void project(Context& context, const Projection& p, const Tensor& x, const Tensor& z);

/// w [m, n] += d [m, r] · Pᵀ, slice by slice of P: no temporary of the size of w.
void expand_add(Context& context, const Projection& p, const Tensor& d, const Tensor& w);

}  // namespace compact
