#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

namespace compact::cuda {

/// Elements whose squares one block adds.
inline constexpr std::int64_t kNormChunk = 32768;
inline std::int64_t norm_chunks(const Tensor& t) { return (t.elements() + kNormChunk - 1) / kNormChunk; }

/// Elements of the F64 workspace that `global_norm` takes.
inline std::int64_t global_norm_partials(std::span<const Tensor> tensors) {
  std::int64_t chunks = 0;
  for (const Tensor& t : tensors) chunks += norm_chunks(t);
  return std::max<std::int64_t>(chunks, 1);
}
void global_norm(Queue& queue, std::span<const Tensor> tensors, const Tensor& partials, const Tensor& norm);

}  // namespace compact::cuda
