#pragma once
#include <cstdint>

#include "kernels/cpu_isa.h"

COMPACT_PER_ISA(
    /// y [N, C] = x · rstd · w, rstd [N]. Where `delta` is not null, sum [N, C] = x + delta is written first
    /// and takes the place of x.
    void rmsnorm_forward(const float* x, std::int64_t ldx, const float* delta, std::int64_t ldd, float* sum,
                         std::int64_t lds, const float* w, float eps, float* y, std::int64_t ldy, float* rstd,
                         std::int64_t N, std::int64_t C);
    /// dx [N, C] += gradient; partial [chunks, C] is workspace for dw [C] +=, chunk i holding the sum over
    /// rows [N i / chunks, N (i + 1) / chunks).
    void rmsnorm_backward(const float* dy, std::int64_t ldy, const float* x, std::int64_t ldx, const float* w,
                          const float* rstd, float* dx, std::int64_t ldd, float* partial, std::int64_t chunks,
                          float* dw, std::int64_t N, std::int64_t C);)
