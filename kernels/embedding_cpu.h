#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/cpu_isa.h"

COMPACT_PER_ISA(
    /// out [N, C] = rows of table [V, C] named by ids [N].
    void embedding_forward(const std::int32_t* ids, const float* table, std::int64_t ldt, float* out,
                           std::int64_t ldo, std::int64_t N, std::int64_t C);
    void embedding_forward(const std::int32_t* ids, const Bf16* table, std::int64_t ldt, Bf16* out,
                           std::int64_t ldo, std::int64_t N, std::int64_t C);
    /// dtable [V, C] += rows of dout [N, C] by id, each element in the order of the tokens.
    void embedding_backward(const std::int32_t* ids, const float* dout, std::int64_t ldo, float* dtable,
                            std::int64_t ldt, std::int64_t N, std::int64_t C);
    void embedding_backward(const std::int32_t* ids, const Bf16* dout, std::int64_t ldo, float* dtable,
                            std::int64_t ldt, std::int64_t N, std::int64_t C);
    /// The same with a sum for each id in fp32, added once. first [V] is the first token of each id (read for
    /// ids that occur), next [N] the next token of the same id, or -1.
    void embedding_backward_once(const std::int32_t* ids, const std::int32_t* first, const std::int32_t* next,
                                 const float* dout, std::int64_t ldo, Bf16* dtable, std::int64_t ldt,
                                 std::int64_t N, std::int64_t C);
    void embedding_backward_once(const std::int32_t* ids, const std::int32_t* first, const std::int32_t* next,
                                 const Bf16* dout, std::int64_t ldo, Bf16* dtable, std::int64_t ldt,
                                 std::int64_t N, std::int64_t C);)
