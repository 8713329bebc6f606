#pragma once
#include <initializer_list>

#include "compact/core/error.h"
#include "compact/memory/context.h"

/// Checks that the dispatch files of ops share.
namespace compact {

inline bool is_float(const Tensor& t) { return t.dtype == DType::F32 || t.dtype == DType::BF16; }

/// [rows, cols], whatever dimensions the rows are folded from.
inline bool is_matrix(const Tensor& t, std::int64_t rows, std::int64_t cols) {
  return t.rows() == rows && t.cols() == cols;
}

/// The CPU kernels compute in fp32 only; a plan may hold bf16 tensors.
inline void require_computable(const Context& context, const char* op,
                               std::initializer_list<Tensor> tensors) {
  if (context.planning()) return;
  for (const Tensor& t : tensors)
    if (t.dtype == DType::BF16)
      run_error(
          "{}: bf16 is planned but not computed by the CPU kernels of this version; use precision \"fp32\"",
          op);
}

}  // namespace compact
