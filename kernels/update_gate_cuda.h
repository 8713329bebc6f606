#pragma once
#include <algorithm>
#include <cstdint>

#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

namespace compact::cuda {

/// Pieces whose sums `add_sum` makes apart: a function of n alone.
inline std::int64_t add_sum_pieces(std::int64_t n) {
  return std::clamp<std::int64_t>((n + 2047) / 2048, 1, 256);
}
/// `partial` [add_sum_pieces(n)] F64 is workspace.
void add_sum(Queue& queue, const Tensor& x, const Tensor& partial, const Tensor& total);
void open_gate(Queue& queue, const Tensor& squares, const Tensor& gate);
void update_gate(Queue& queue, const Tensor& loss_total, const Tensor& norm, double max_norm,
                 const Tensor& squares, const Tensor& gate);

}  // namespace compact::cuda
