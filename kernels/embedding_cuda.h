#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

namespace compact::cuda {

/// Ids were checked where they were staged: here they are on the device.
void embedding_forward(Queue& queue, const Tensor& ids, const Tensor& table, const Tensor& out);
/// `order` [N] I32 is workspace: the tokens sorted by id, equal ids in the order of the tokens.
void embedding_backward(Queue& queue, const Tensor& ids, const Tensor& dout, const Tensor& order,
                        const Tensor& dtable);

}  // namespace compact::cuda
