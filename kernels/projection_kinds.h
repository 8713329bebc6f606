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
  /// Slices of 1 MiB; on a CUDA device of `cuda_bytes`.
  Slices(Context& context, const Projection& p, DType dtype, std::int64_t cuda_bytes = kCudaBytes);
  /// A multiple of 16 (on a CUDA device of 128), or all of P: what fits, but 16 or 128 rows at least.
  std::int64_t step() const { return step_; }
  /// Rows [begin, begin + step), fewer at the end. The slice returned before is no longer there.
  Tensor rows(Context& context, std::int64_t begin) const;

  /// On a CUDA device a slice stays in the cache of second level, and is enough work for all of it.
  static constexpr std::int64_t kCudaBytes = std::int64_t{16} << 20;

 private:
  const Projection& p_;
  bool kept_;
  std::int64_t step_;
  Tensor slice_;
};

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
/// On a CUDA device an F32 w may be a master weight beside the BF16 weights `nearest`, which become its
/// nearest values in the same pass.
void dense_expand(Context& context, const Projection& p, const Tensor& d, float kept,
                  const Rounding& rounding, const Tensor& w, const float* gate, const Tensor& nearest = {});

}  // namespace compact
