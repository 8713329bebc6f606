#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/cpu_isa.h"

COMPACT_PER_ISA(
    /// y [N, C] = x · rstd · w, rstd [N]. Where `delta` is not null, sum [N, C] = x + delta is written first
    /// and takes the place of x.
    void rmsnorm_forward(const float* x, std::int64_t ldx, const float* delta, std::int64_t ldd, float* sum,
                         std::int64_t lds, const float* w, float eps, float* y, std::int64_t ldy, float* rstd,
                         std::int64_t N, std::int64_t C);
    void rmsnorm_forward(const Bf16* x, std::int64_t ldx, const Bf16* delta, std::int64_t ldd, Bf16* sum,
                         std::int64_t lds, const Bf16* w, float eps, Bf16* y, std::int64_t ldy, float* rstd,
                         std::int64_t N, std::int64_t C);
    /// dx [N, C] += gradient; partial [chunks, C] receives that of w, chunk i the sum over rows
    /// [N i / chunks, N (i + 1) / chunks). With BF16 rows the sums of the even columns come first, then those
    /// of the odd ones, as the loops over pairs make them.
    void rmsnorm_backward(const float* dy, std::int64_t ldy, const float* x, std::int64_t ldx, const float* w,
                          const float* rstd, float* dx, std::int64_t ldd, float* partial, std::int64_t chunks,
                          std::int64_t N, std::int64_t C);
    void rmsnorm_backward(const Bf16* dy, std::int64_t ldy, const Bf16* x, std::int64_t ldx, const Bf16* w,
                          const float* rstd, Bf16* dx, std::int64_t ldd, float* partial, std::int64_t chunks,
                          std::int64_t N, std::int64_t C);
    /// dw [C] += the sum of partial's rows, made first (in row 0) and added once. `even_first`: partial is
    /// from BF16 rows.
    void rmsnorm_add_dw(float* partial, std::int64_t chunks, std::int64_t C, bool even_first, float* dw);
    void rmsnorm_add_dw(float* partial, std::int64_t chunks, std::int64_t C, bool even_first, Bf16* dw);)
