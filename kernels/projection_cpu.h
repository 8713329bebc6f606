#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "compact/kernels/rounding.h"
#include "kernels/cpu_isa.h"

// All [rows, cols], rows ld.. elements apart. The threads share the rows.
COMPACT_PER_ISA(
    /// x = factor · x.
    void scale_rows(float* x, std::int64_t ld, std::int64_t rows, std::int64_t cols, float factor);
    /// x = the nearest value that BF16 has.
    void round_rows(float* x, std::int64_t ld, std::int64_t rows, std::int64_t cols);
    /// w = kept · w + change, rounded as `rounding` says for the elements from (first_row, first_column) on
    /// of a tensor; first_column is a multiple of 4.
    void add_change(Bf16* w, std::int64_t ldw, const float* change, std::int64_t ldc, std::int64_t rows,
                    std::int64_t cols, float kept, const Rounding& rounding, std::int64_t first_row,
                    std::int64_t first_column);)
