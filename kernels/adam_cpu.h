#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "compact/kernels/adam_step.h"
#include "compact/kernels/rounding.h"
#include "kernels/cpu_isa.h"

/// Loops over contiguous [rows, cols]; the threads share them. W, G and S, the types of weight, gradient and
/// moments, are each float or Bf16. `adam_update` is the whole of AdamW, on `master` where it is not null;
/// `adam_direction` leaves -lr · N in g; `adam_direction_by_row` does so with v [rows], one for each row.
COMPACT_PER_ISA(template <typename W, typename G, typename S>
                void adam_update(const AdamStep& step, const Rounding& rounding, W* w, float* master,
                                 const G* g, S* m, S* v, std::int64_t rows, std::int64_t cols);
                template <typename G, typename S>
                void adam_direction(const AdamStep& step, const Rounding& rounding, G* g, S* m, S* v,
                                    std::int64_t rows, std::int64_t cols);
                template <typename G, typename S>
                void adam_direction_by_row(const AdamStep& step, const Rounding& rounding, G* g, S* m, S* v,
                                           std::int64_t rows, std::int64_t cols);)
