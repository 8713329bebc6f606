#pragma once
#include <initializer_list>

#include "compact/core/error.h"
#include "compact/kernels/rounding.h"
#include "compact/memory/context.h"
#include "kernels/by_type.h"

/// Checks that the dispatch files of ops share.
namespace compact {

inline bool is_float(const Tensor& t) { return t.dtype == DType::F32 || t.dtype == DType::BF16; }

/// [rows, cols], whatever dimensions the rows are folded from.
inline bool is_matrix(const Tensor& t, std::int64_t rows, std::int64_t cols) {
  return t.rows() == rows && t.cols() == cols;
}

/// For a tensor of `rows` rows.
inline void check_rounding(const Rounding& rounding, std::int64_t rows, const char* op) {
  require(rounding.id < 1u << 24, op, "an id has 24 bits");
  require(rounding.first_row >= 0 && rounding.first_row + rows <= INT32_MAX, op,
          "a row is one word of the counter");
}

/// Bytes of all tensors together.
inline std::int64_t bytes_of(std::initializer_list<Tensor> tensors) {
  std::int64_t bytes = 0;
  for (const Tensor& t : tensors) bytes += t.bytes();
  return bytes;
}

}  // namespace compact
