#pragma once
#include <cstdint>

#include "compact/core/tensor.h"

namespace compact {

/// A run of rows of a tensor.
struct Rows {
  std::int64_t first = 0, count = 0;
};

/// The rows of `t` that belong to `rank` of `size` ranks: [rows · rank / size, rows · (rank + 1) / size),
/// each bound rounded down. Shares differ by one row at most, and the last rank's is never the smaller one; a
/// tensor of one row, such as a norm's weight, is the last rank's.
inline Rows rows_of(const Tensor& t, int rank, int size) {
  const std::int64_t rows = t.rows(), first = rows * rank / size;
  return {first, rows * (rank + 1) / size - first};
}

/// The same as a view of `t`.
inline Tensor rows_in(const Tensor& t, const Rows& rows) {
  return t.reshaped({t.rows(), t.cols()}).row_range(rows.first, rows.count);
}

}  // namespace compact
