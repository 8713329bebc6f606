#pragma once
#include <cstdint>

#include "kernels/cpu_isa.h"

COMPACT_PER_ISA(
    /// out [N, C] = rows of table [V, C] named by ids [N].
    void embedding_forward(const std::int32_t* ids, const float* table, std::int64_t ldt, float* out,
                           std::int64_t ldo, std::int64_t N, std::int64_t C);
    /// dtable [V, C] += rows of dout [N, C] by id, each element in the order of the tokens.
    void embedding_backward(const std::int32_t* ids, const float* dout, std::int64_t ldo, float* dtable,
                            std::int64_t ldt, std::int64_t N, std::int64_t C);)
