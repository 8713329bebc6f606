#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/cpu_isa.h"

/// out [rows, cols], rows `ld` apart: element (i, j) = scale · deviate j mod 4 of the Philox block with
/// counter (j / 4, first_row + i, word2, word3), in float, then rounded to nearest where out is BF16. The
/// threads share the rows.
COMPACT_PER_ISA(void normal_rows(float* out, std::int64_t ld, std::int64_t first_row, std::int64_t rows,
                                 std::int64_t cols, float scale, std::uint64_t key, std::uint32_t word2,
                                 std::uint32_t word3);
                void normal_rows(Bf16* out, std::int64_t ld, std::int64_t first_row, std::int64_t rows,
                                 std::int64_t cols, float scale, std::uint64_t key, std::uint32_t word2,
                                 std::uint32_t word3);)
