#pragma once
#include "compact/memory/context.h"

namespace compact {

/// table [T, D] (F32, contiguous): row t holds cos(t·f_i) for i < D/2, then sin(t·f_i), f_i = base^(-2i/D).
/// Angles are made in double, by the host for every device. Not inside a step of a queue.
void rope_table(Context& context, double base, const Tensor& table);

enum class Rotation { Forward, Backward };

/// Turns x [B·T, heads·D] (F32 or BF16) in place (a view; rows may be strided): channel i of a head with
/// channel i + D/2 by the angle of its position (half-split pairing, as Hugging Face). Row n is at position
/// first_position + n mod T. D = table.cols(). Backward turns the other way. Position 0 changes no bit.
void rope(Context& context, const Tensor& x, std::int64_t T, std::int64_t first_position, const Tensor& table,
          Rotation direction);

}  // namespace compact
