#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "compact/kernels/rounding.h"
#include "kernels/cpu_isa.h"

namespace compact {

/// A drawn sparse P [n, r]: each row has `count` elements that are not 0.
struct SparseDraw {
  std::int64_t n = 0, r = 0, count = 0;
  const std::uint32_t* places = nullptr;  ///< [n, count] column · 2, plus 1 where the sign is -
  float entry = 0;                        ///< the elements' size, 1 / sqrt(count)
};

}  // namespace compact

// `work` is [threads, r · 16] floats. The threads share the rows of x, w and tile.
COMPACT_PER_ISA(
    /// z [N, r] = x [N, n] · P.
    void sparse_project(const SparseDraw& p, const float* x, std::int64_t ldx, float* z, std::int64_t ldz,
                        std::int64_t N, float* work);
    void sparse_project(const SparseDraw& p, const Bf16* x, std::int64_t ldx, float* z, std::int64_t ldz,
                        std::int64_t N, float* work);
    void sparse_project(const SparseDraw& p, const Bf16* x, std::int64_t ldx, Bf16* z, std::int64_t ldz,
                        std::int64_t N, float* work);
    /// w [m, n] = kept · w + d [m, r] · Pᵀ.
    void sparse_expand(const SparseDraw& p, const float* d, std::int64_t ldd, float* w, std::int64_t ldw,
                       std::int64_t m, float kept, const Rounding& rounding, float* work);
    void sparse_expand(const SparseDraw& p, const Bf16* d, std::int64_t ldd, float* w, std::int64_t ldw,
                       std::int64_t m, float kept, const Rounding& rounding, float* work);
    void sparse_expand(const SparseDraw& p, const float* d, std::int64_t ldd, Bf16* w, std::int64_t ldw,
                       std::int64_t m, float kept, const Rounding& rounding, float* work);
    void sparse_expand(const SparseDraw& p, const Bf16* d, std::int64_t ldd, Bf16* w, std::int64_t ldw,
                       std::int64_t m, float kept, const Rounding& rounding, float* work);
    /// Rows [first_row, first_row + rows) of P into tile [rows, r].
    void sparse_rows(const SparseDraw& p, std::int64_t first_row, float* tile, std::int64_t ld,
                     std::int64_t rows);
    void sparse_rows(const SparseDraw& p, std::int64_t first_row, Bf16* tile, std::int64_t ld,
                     std::int64_t rows);)
