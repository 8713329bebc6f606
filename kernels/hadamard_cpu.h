#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "compact/kernels/rounding.h"
#include "kernels/cpu_isa.h"

namespace compact {

/// A drawn subsampled randomized Hadamard transform: P (i, j) = entry · signs(i) · (-1)^popcount(i &
/// sample(j)).
struct HadamardDraw {
  std::int64_t n = 0, r = 0, s = 0;      ///< s: the power of two that n is padded to
  const std::uint32_t* signs = nullptr;  ///< [s] 1 << 31 where the sign is -, else 0
  const std::int32_t* sample = nullptr;  ///< [r] rows of the transform
  float entry = 0;                       ///< 1 / sqrt(r), rounded to the type of P
};

}  // namespace compact

// `work` is [threads, s · 16] floats. The threads share the rows of x, w and tile.
COMPACT_PER_ISA(
    /// z [N, r] = x [N, n] · P.
    void hadamard_project(const HadamardDraw& p, const float* x, std::int64_t ldx, float* z, std::int64_t ldz,
                          std::int64_t N, float* work);
    void hadamard_project(const HadamardDraw& p, const Bf16* x, std::int64_t ldx, float* z, std::int64_t ldz,
                          std::int64_t N, float* work);
    void hadamard_project(const HadamardDraw& p, const Bf16* x, std::int64_t ldx, Bf16* z, std::int64_t ldz,
                          std::int64_t N, float* work);
    /// w [m, n] = kept · w + d [m, r] · Pᵀ.
    void hadamard_expand(const HadamardDraw& p, const float* d, std::int64_t ldd, float* w, std::int64_t ldw,
                         std::int64_t m, float kept, const Rounding& rounding, float* work);
    void hadamard_expand(const HadamardDraw& p, const Bf16* d, std::int64_t ldd, float* w, std::int64_t ldw,
                         std::int64_t m, float kept, const Rounding& rounding, float* work);
    void hadamard_expand(const HadamardDraw& p, const float* d, std::int64_t ldd, Bf16* w, std::int64_t ldw,
                         std::int64_t m, float kept, const Rounding& rounding, float* work);
    void hadamard_expand(const HadamardDraw& p, const Bf16* d, std::int64_t ldd, Bf16* w, std::int64_t ldw,
                         std::int64_t m, float kept, const Rounding& rounding, float* work);
    /// Rows [first_row, first_row + rows) of P into tile [rows, r].
    void hadamard_rows(const HadamardDraw& p, std::int64_t first_row, float* tile, std::int64_t ld,
                       std::int64_t rows);
    void hadamard_rows(const HadamardDraw& p, std::int64_t first_row, Bf16* tile, std::int64_t ld,
                       std::int64_t rows);)
