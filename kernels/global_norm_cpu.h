#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/cpu_isa.h"

/// The sum of x² over n elements in double. The order depends on n alone.
COMPACT_PER_ISA(double sum_of_squares(const float* x, std::int64_t n);
                double sum_of_squares(const Bf16* x, std::int64_t n);)
