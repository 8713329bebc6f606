#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/cpu_isa.h"

COMPACT_PER_ISA(
    /// Turns x [N, heads·D] in place; row n is at position first + n mod T. table rows hold D/2 cosines, then
    /// D/2 sines, which `sign` (1 or -1) multiplies.
    void rope(float* x, std::int64_t ldx, std::int64_t N, std::int64_t heads, std::int64_t D, std::int64_t T,
              std::int64_t first, const float* table, std::int64_t ldt, float sign);
    void rope(Bf16* x, std::int64_t ldx, std::int64_t N, std::int64_t heads, std::int64_t D, std::int64_t T,
              std::int64_t first, const float* table, std::int64_t ldt, float sign);)
