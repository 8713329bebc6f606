#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/cpu_isa.h"

/// Rows of logits [n, V], `ld` apart; labels and loss [n]; a negative label is ignored. With `gradient` the
/// logits become (softmax - onehot) · scale, ignored rows 0. The threads share the rows. `terms` [threads, V]
/// keeps the exponentials of a row between the passes; only BF16 with `gradient` reads it.
COMPACT_PER_ISA(void cross_entropy_rows(float* logits, std::int64_t ld, const std::int32_t* labels,
                                        std::int64_t n, std::int64_t V, bool gradient, float scale,
                                        float* terms, float* loss);
                void cross_entropy_rows(Bf16* logits, std::int64_t ld, const std::int32_t* labels,
                                        std::int64_t n, std::int64_t V, bool gradient, float scale,
                                        float* terms, float* loss);)
