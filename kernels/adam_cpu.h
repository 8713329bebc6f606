#pragma once
#include <cstdint>

#include "compact/kernels/adam_step.h"
#include "kernels/cpu_isa.h"

/// Loops over n elements; the threads share them. `adam_update` is the whole of AdamW; `adam_direction`
/// leaves -lr · N in g; `adam_decay` multiplies by 1 - decay.
COMPACT_PER_ISA(void adam_update(const AdamStep& step, float* w, const float* g, float* m, float* v,
                                 std::int64_t n);
                void adam_direction(const AdamStep& step, float* g, float* m, float* v, std::int64_t n);
                void adam_decay(float* w, float decay, std::int64_t n);)
