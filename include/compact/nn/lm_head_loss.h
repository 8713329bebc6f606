#pragma once
#include <cstdint>

#include "compact/memory/context.h"
#include "compact/nn/linear.h"

namespace compact {

/// Head and cross-entropy together, a chunk of tokens at a time, so that the logits of the whole batch never
/// exist: the loss and both gradients of a chunk are finished before the next (design, section 3).
class LmHeadLoss {
 public:
  /// `weight` [V, C] and `gradient` (like it, or empty). A chunk's logits take at most `chunk_bytes` (one
  /// token at least). With `always_add` the gradient is added to also in the first micro-batch (tied
  /// embedding).
  LmHeadLoss(Tensor weight, Tensor gradient, DType activation, std::int64_t chunk_bytes, bool always_add);

  /// loss [N] (F32) for hidden [N, C] and labels [N] (I32, kIgnoreIndex not counted).
  void forward(Context& context, const Tensor& hidden, const Tensor& labels, const Tensor& loss) const;
  /// The same, with the weight's gradient; hidden [N, C] becomes its own gradient.
  void forward_backward(Context& context, const Pass& pass, const Tensor& hidden, const Tensor& labels,
                        const Tensor& loss) const;
  /// logits [N, V] of hidden [N, C], for generation.
  void logits(Context& context, const Tensor& hidden, const Tensor& out) const;

 private:
  std::int64_t chunk_rows(std::int64_t tokens) const;

  Tensor weight_, gradient_;  // [V, C]
  DType activation_;
  std::int64_t chunk_bytes_;
  bool always_add_;
};

}  // namespace compact
