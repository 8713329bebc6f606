#pragma once
#include "compact/memory/context.h"

namespace compact {

// What decides on the device itself whether a step's updates happen, so that nobody waits for a number in the
// middle of a step.

/// total [1] (F64) += the elements of x [n] (F32), summed in double in a fixed order.
void add_sum(Context& context, const Tensor& x, const Tensor& total);

/// gate [3] (F32): [0] the factor of all gradients (clipping), [1] 1 where updates may happen, else 0, [2]
/// the calls of update_gate that left it open. Opens it: (1, 1, 0), and sets squares [1] (F64) to 0.
void open_gate(Context& context, const Tensor& squares, const Tensor& gate);

/// Lets the gate judge gradients of global norm `norm` [1] (F32) at a loss of `loss_total` [1] (F64):
/// squares += norm²; where either is not finite the gate closes, and stays closed until it is opened anew;
/// else gate[0] becomes clip_scale(norm, max_norm), or 1 for a max_norm of 0, and gate[2] counts one more.
void update_gate(Context& context, const Tensor& loss_total, const Tensor& norm, double max_norm,
                 const Tensor& squares, const Tensor& gate);

}  // namespace compact
