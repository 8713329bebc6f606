#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/cpu_isa.h"

COMPACT_PER_ISA(
    /// out[i] = the sum over k of pieces[k][i], in the order of k, for i < n.
    void sum_pieces(const float* const* pieces, std::int64_t count, float* out, std::int64_t n);
    void sum_pieces(const Bf16* const* pieces, std::int64_t count, Bf16* out, std::int64_t n);
    void sum_pieces(const double* const* pieces, std::int64_t count, double* out, std::int64_t n);)
