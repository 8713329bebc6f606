#pragma once
#include "compact/memory/context.h"

namespace compact {

/// out [N, C] = table [V, C] rows named by ids [N] (I32, each in [0, V)).
void embedding_forward(Context& context, const Tensor& ids, const Tensor& table, const Tensor& out);

/// dtable [V, C] += rows of dout [N, C] summed by id, in the order of the tokens whatever the number of
/// threads. Rows of unused ids are not touched.
void embedding_backward(Context& context, const Tensor& ids, const Tensor& dout, const Tensor& dtable);

}  // namespace compact
