#pragma once
#include "compact/kernels/projection.h"

/// What projection.cpp and the files of the kinds share. Arguments are checked by projection.cpp.
namespace compact {

/// Sizes, id and, where the kind keeps it, the matrix.
void check_projection(const Projection& p, const char* op);

/// Rows of P as operands of products: rows of the matrix itself where one of that type is kept, else made in
/// one slice of scratch, which lives as long as the caller's scratch scope.
class Slices {
 public:
  Slices(Context& context, const Projection& p, DType dtype);
  /// A multiple of 16, or all of P: what fits in 1 MiB, but 16 rows at least.
  std::int64_t step() const { return step_; }
  /// Rows [begin, begin + step), fewer at the end. The slice returned before is no longer there.
  Tensor rows(Context& context, std::int64_t begin) const;

 private:
  const Projection& p_;
  bool kept_;
  std::int64_t step_;
  Tensor slice_;
};

/// Of a gate in the host's memory.
inline bool is_closed(const float* gate) { return gate != nullptr && gate[1] == 0.0f; }

void hadamard_rows(Context& context, const Projection& p, std::int64_t begin, const Tensor& tile);
void hadamard_project(Context& context, const Projection& p, const Tensor& x, const Tensor& z);
void hadamard_expand(Context& context, const Projection& p, const Tensor& d, float kept,
                     const Rounding& rounding, const Tensor& w, const float* gate);

void sparse_rows(Context& context, const Projection& p, std::int64_t begin, const Tensor& tile);
void sparse_project(Context& context, const Projection& p, const Tensor& x, const Tensor& z);
void sparse_expand(Context& context, const Projection& p, const Tensor& d, float kept,
                   const Rounding& rounding, const Tensor& w, const float* gate);

/// By products with slices of P.
void dense_project(Context& context, const Projection& p, const Tensor& x, const Tensor& z);
void dense_expand(Context& context, const Projection& p, const Tensor& d, float kept,
                  const Rounding& rounding, const Tensor& w, const float* gate);

}  // namespace compact
