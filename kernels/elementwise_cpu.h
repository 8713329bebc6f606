#pragma once
#include <cstdint>

#include "kernels/cpu_isa.h"

COMPACT_PER_ISA(
    /// x [rows, cols] = value.
    void fill(float* x, std::int64_t ld, std::int64_t rows, std::int64_t cols, float value);
    /// to = from, both [rows, cols].
    void copy(const float* from, std::int64_t ldf, float* to, std::int64_t ldt, std::int64_t rows,
              std::int64_t cols);
    /// out = a + b, all [rows, cols].
    void add(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* out, std::int64_t ldo,
             std::int64_t rows, std::int64_t cols);)
