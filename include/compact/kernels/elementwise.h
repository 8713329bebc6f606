#pragma once
#include <cstdint>

#include "compact/memory/context.h"

namespace compact {

/// Sets every element to zero. The view may be strided.
void zero(Context& context, const Tensor& x);

/// Sets every element to `value`.
void fill(Context& context, const Tensor& x, float value);

/// to = from, both [N, C]; the views may be strided and of different types (F32, BF16: rounded to nearest).
void copy(Context& context, const Tensor& from, const Tensor& to);

/// out = a + b, all [N, C] of one type; out may be a or b.
void add(Context& context, const Tensor& a, const Tensor& b, const Tensor& out);

/// x [rows, cols] (contiguous) becomes i.i.d. N(0, stddev²) from Philox: key `seed`, counter (column / 4,
/// row, 0, stream init << 24 | id). The same numbers on every device (design, section 2); in BF16 those of
/// F32, rounded to nearest.
void fill_normal(Context& context, const Tensor& x, float stddev, std::uint64_t seed, std::uint32_t id);

}  // namespace compact
