#pragma once
#include <bit>
#include <cstdint>

#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/projection.h"

namespace compact::cuda {

/// Elements of a row of P that are not 0, one in each of as many parts of the columns, [r k / count, r (k +
/// 1) / count).
inline int sparse_count(const Projection& p) { return p.r >= 4 ? 4 : 1; }

/// Where lists of what meets each column lie in the workspace of a projection, in I32: for each part of the
/// columns a list for each of its columns, of 4 entries at a time; then where they begin; then, where they do
/// not fit in shared memory, the keys that are sorted to make the lists.
struct SparseLists {
  int count = 0;
  std::int64_t part = 0;  ///< entries of one part of the columns, a multiple of 4
  std::int64_t keys = 0;  ///< n rounded up to a power of two
  bool keys_outside = false;

  explicit SparseLists(const Projection& p)
      : count(sparse_count(p)),
        keys(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(p.n)))) {
    // A list is padded with up to three entries.
    const std::int64_t columns = (p.r + count - 1) / count;
    part = (p.n + 3 * columns + 3) / 4 * 4;
    // A key of 32 bits: row in 14, sign in one, column in 17.
    keys_outside = p.n > 1 << 14 || columns >= (1 << 17) - 1;
  }
  std::int64_t entries() const { return count * part; }
  std::int64_t size(const Projection& p) const {
    return entries() + (2 * p.r + 3) / 4 * 4 + (keys_outside ? 2 * count * keys : 0);
  }
};

void sparse_rows(Queue& queue, const Projection& p, std::int64_t begin, const Tensor& tile);
/// `lists` is workspace, [SparseLists(p).size(p)] I32.
void sparse_project(Queue& queue, const Projection& p, const Tensor& lists, const Tensor& x, const Tensor& z);
void sparse_expand(Queue& queue, const Projection& p, const Tensor& d, float kept, const Rounding& rounding,
                   const float* gate, const Tensor& w);

}  // namespace compact::cuda
