#pragma once
#include "compact/memory/context.h"

namespace compact {

/// out [N, C] = table [V, C] rows named by ids [N] (I32, each in [0, V)). Both F32 or both BF16.
void embedding_forward(Context& context, const Tensor& ids, const Tensor& table, const Tensor& out);

/// dtable [V, C] += rows of dout [N, C] summed by id, in the order of the tokens whatever the number of
/// threads. Rows of unused ids are not touched. Each F32 or BF16; to a BF16 dtable the sum of an id, made in
/// fp32, is added once, so that many small gradients are not lost.
void embedding_backward(Context& context, const Tensor& ids, const Tensor& dout, const Tensor& dtable);

}  // namespace compact
