#pragma once
#include <cstdint>

#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

namespace compact::cuda {

/// tile [rows, cols] = scale · deviates of rows begin.. : counter (column / 4, row, window, stream_id), key
/// `seed`. `through_bf16`: an fp32 tile holds the values rounded to BF16.
void normal_rows(Queue& queue, const Tensor& tile, std::int64_t begin, float scale, std::uint64_t seed,
                 std::uint32_t window, std::uint32_t stream_id, bool through_bf16);

}  // namespace compact::cuda
