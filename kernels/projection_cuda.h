#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/projection.h"

namespace compact::cuda {

// Whether a kernel makes a gaussian P on the fly, in the shared memory of the product that uses it, or P is
// made once in scratch. It depends on sizes alone, so that a plan knows it.
//
// An element of P costs about 45 instructions (15 of Philox, 25 of Box-Muller, its rounding and store), 45 /
// 128 cycles of a multiprocessor, which is more than the 128 multiply-adds of a row tile cost the tensor
// cores (1 / 16 to 1 / 8 of that). On the fly, every tile of the result makes all of P that it meets anew,
// and no more multiprocessors share in it than there are tiles; in scratch, all of them share in making each
// element once, but there is one more launch:
//   on the fly  ceil(tiles / 132) · (elements of P that a tile meets) · 45 / 128   cycles
//   in scratch  3500 + n · r · 45 / 128 / 132                                      cycles
// 3500 cycles (2 us) are a launch, filled and drained. P's way through memory itself hardly counts: 4 n r
// bytes stay in the cache of second level. So on the fly wins for small weights, whose launches are the cost:
// where one wave of tiles does the work and a tile meets fewer than about 10000 elements.

inline constexpr std::int64_t kProjectRows = 128, kProjectColumns = 32;  ///< of a tile of z
inline constexpr std::int64_t kExpandRows = 128, kExpandColumns = 64;    ///< of a tile of w

inline bool is_made_on_the_fly(const Projection& p, std::int64_t tiles, std::int64_t met) {
  const std::int64_t multiprocessors = 132, launch = 3500;
  const std::int64_t waves = (tiles + multiprocessors - 1) / multiprocessors;
  return p.kind == ProjectionKind::Gaussian &&
         waves * met * 45 / 128 < launch + p.n * p.r * 45 / 128 / multiprocessors;
}

/// For z [rows, r] = x [rows, n] · P in bf16.
inline bool projects_on_the_fly(const Projection& p, std::int64_t rows) {
  const std::int64_t tiles =
      ((rows + kProjectRows - 1) / kProjectRows) * ((p.r + kProjectColumns - 1) / kProjectColumns);
  return is_made_on_the_fly(p, tiles, p.n * kProjectColumns);
}

/// For w [rows, n] = kept · w + d [rows, r] · Pᵀ.
inline bool expands_on_the_fly(const Projection& p, std::int64_t rows) {
  const std::int64_t tiles =
      ((rows + kExpandRows - 1) / kExpandRows) * ((p.n + kExpandColumns - 1) / kExpandColumns);
  return is_made_on_the_fly(p, tiles, p.r * kExpandColumns);
}

/// z [N, r] = x [N, n] · P, P gaussian and made on the fly; x and P BF16.
void project(Queue& queue, const Projection& p, const Tensor& x, const Tensor& z);

/// w [m, n] = kept · w + d [m, r] · (rows of P [n, r])ᵀ in one pass over w, rounded as `rounding` says.
/// Column j of w is column first_column + j of the weight. `rows_of_p` is empty where P, a gaussian one, is
/// made on the fly; first_column is then 0. Its type is that of the products: F32, or BF16, to which an F32 d
/// is rounded. Where `nearest` is not empty, w is an F32 master weight and `nearest` (BF16 or F32) becomes
/// its nearest value.
void expand_add(Queue& queue, const Projection& p, const Tensor& rows_of_p, const Tensor& d, float kept,
                const Rounding& rounding, const float* gate, std::int64_t first_column, const Tensor& w,
                const Tensor& nearest);

}  // namespace compact::cuda
