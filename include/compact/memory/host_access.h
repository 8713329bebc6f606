#pragma once
#include <cstddef>
#include <vector>

#include "compact/core/tensor.h"

namespace compact {

namespace cuda {
class Queue;
}

/// Contiguous tensors as the host reads and writes them: themselves where they lie in its memory, else
/// through a buffer and the device's queue. Not inside a step.
class HostAccess {
 public:
  /// `queue`: that of the device where the tensors lie; null for host memory.
  explicit HostAccess(cuda::Queue* queue = nullptr) : queue_(queue) {}

  /// The elements of `t` now, until the next call of this object.
  const void* read(const Tensor& t);
  /// Where the host puts new elements of `t`: a tensor like it, until the next call of this object.
  Tensor begin_write(const Tensor& t);
  /// They have been put there.
  void end_write(const Tensor& t);

 private:
  cuda::Queue* queue_;
  std::vector<std::byte> buffer_;
};

}  // namespace compact
