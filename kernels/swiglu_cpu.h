#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/cpu_isa.h"

COMPACT_PER_ISA(
    /// out [N, F] = silu(gate) · up from gate_up [N, 2F]; activation [N, F] = silu(gate) where not null.
    void swiglu_forward(const float* gate_up, std::int64_t ldg, float* out, std::int64_t ldo,
                        float* activation, std::int64_t lda, std::int64_t N, std::int64_t F);
    void swiglu_forward(const Bf16* gate_up, std::int64_t ldg, Bf16* out, std::int64_t ldo, Bf16* activation,
                        std::int64_t lda, std::int64_t N, std::int64_t F);
    /// dgate_up [N, 2F] and, where it is not null, product [N, F] = silu(gate) · up; activation may be null.
    void swiglu_backward(const float* gate_up, std::int64_t ldg, const float* activation, std::int64_t lda,
                         const float* dout, std::int64_t ldo, float* dgate_up, std::int64_t ldd,
                         float* product, std::int64_t ldp, std::int64_t N, std::int64_t F);
    void swiglu_backward(const Bf16* gate_up, std::int64_t ldg, const Bf16* activation, std::int64_t lda,
                         const Bf16* dout, std::int64_t ldo, Bf16* dgate_up, std::int64_t ldd, Bf16* product,
                         std::int64_t ldp, std::int64_t N, std::int64_t F);)
