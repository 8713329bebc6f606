#pragma once
#include "compact/memory/context.h"

namespace compact {

/// out [N, F] = silu(gate) · up, with gate_up [N, 2F] holding gate in columns [0, F) and up in [F, 2F).
/// Where `activation` [N, F] is not empty it receives silu(gate). All of one type, F32 or BF16; arithmetic in
/// fp32.
void swiglu_forward(Context& context, const Tensor& gate_up, const Tensor& out, const Tensor& activation);

/// dgate_up [N, 2F] from dout [N, F]; dgate_up may be gate_up itself. Where `activation` is not empty it is
/// read instead of being made again; the bits are the same (in BF16 backward takes the rounded silu(gate) in
/// both cases). Where `product` [N, F] is not empty it receives what swiglu_forward gave as out, to the bit;
/// it may be dout itself.
void swiglu_backward(Context& context, const Tensor& gate_up, const Tensor& activation, const Tensor& dout,
                     const Tensor& dgate_up, const Tensor& product = {});

}  // namespace compact
