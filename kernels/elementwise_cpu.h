#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/cpu_isa.h"

// All [rows, cols], rows ld.. elements apart. The threads share rows and pieces of long rows.
COMPACT_PER_ISA(
    /// x = value, rounded to nearest.
    void fill(float* x, std::int64_t ld, std::int64_t rows, std::int64_t cols, float value);
    void fill(Bf16* x, std::int64_t ld, std::int64_t rows, std::int64_t cols, float value);
    /// to = from; between equal types every bit is kept.
    void copy(const float* from, std::int64_t ldf, float* to, std::int64_t ldt, std::int64_t rows,
              std::int64_t cols);
    void copy(const float* from, std::int64_t ldf, Bf16* to, std::int64_t ldt, std::int64_t rows,
              std::int64_t cols);
    void copy(const Bf16* from, std::int64_t ldf, float* to, std::int64_t ldt, std::int64_t rows,
              std::int64_t cols);
    void copy(const Bf16* from, std::int64_t ldf, Bf16* to, std::int64_t ldt, std::int64_t rows,
              std::int64_t cols);
    /// out = a + b.
    void add(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* out, std::int64_t ldo,
             std::int64_t rows, std::int64_t cols);
    void add(const Bf16* a, std::int64_t lda, const Bf16* b, std::int64_t ldb, Bf16* out, std::int64_t ldo,
             std::int64_t rows, std::int64_t cols);)
