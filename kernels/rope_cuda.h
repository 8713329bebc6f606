#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

namespace compact::cuda {

/// `sign` 1 turns forwards, -1 back.
void rope(Queue& queue, const Tensor& x, std::int64_t T, std::int64_t first_position, const Tensor& table,
          float sign);

}  // namespace compact::cuda
