#include "compact/nn/lm_head_loss.h"

#include <algorithm>

#include "compact/kernels/cross_entropy.h"
#include "compact/kernels/gemm.h"

namespace compact {

LmHeadLoss::LmHeadLoss(Tensor weight, Tensor gradient, DType activation, std::int64_t chunk_bytes,
                       bool always_add)
    : weight_(weight),
      gradient_(gradient),
      activation_(activation),
      chunk_bytes_(chunk_bytes),
      always_add_(always_add) {}

std::int64_t LmHeadLoss::chunk_rows(std::int64_t tokens) const {
  const std::int64_t most =
      std::clamp<std::int64_t>(chunk_bytes_ / (weight_.rows() * size_of(activation_)), 1, tokens);
  // Equal chunks: the fewer shapes, the fewer primitives, and no thin last one.
  const std::int64_t chunks = (tokens + most - 1) / most;
  return (tokens + chunks - 1) / chunks;
}

void LmHeadLoss::forward(Context& context, const Tensor& hidden, const Tensor& labels,
                         const Tensor& loss) const {
  const std::int64_t N = hidden.rows(), rows = chunk_rows(N);
  for (std::int64_t at = 0; at < N; at += rows) {
    ScratchScope scope(context.arena);
    const std::int64_t n = std::min(rows, N - at);
    const Tensor chunk = context.arena.scratch("logits", {n, weight_.rows()}, activation_);
    logits(context, hidden.row_range(at, n), chunk);
    cross_entropy_forward(context, chunk, labels.slice(at, n), loss.slice(at, n));
  }
}

void LmHeadLoss::forward_backward(Context& context, const Pass& pass, const Tensor& hidden,
                                  const Tensor& labels, const Tensor& loss) const {
  const std::int64_t N = hidden.rows(), rows = chunk_rows(N);
  for (std::int64_t at = 0; at < N; at += rows) {
    ScratchScope scope(context.arena);
    const std::int64_t n = std::min(rows, N - at);
    const Tensor h = hidden.row_range(at, n);
    const Tensor chunk = context.arena.scratch("logits", {n, weight_.rows()}, activation_);
    logits(context, h, chunk);
    cross_entropy_backward(context, chunk, labels.slice(at, n), pass.loss_scale, loss.slice(at, n));
    const bool add = always_add_ || !pass.first || at > 0;
    gemm(context, chunk, Transpose::Yes, h, Transpose::No, gradient_, add);
    gemm(context, chunk, Transpose::No, weight_, Transpose::No, h, false);  // h is read no more
  }
}

void LmHeadLoss::logits(Context& context, const Tensor& hidden, const Tensor& out) const {
  gemm(context, hidden, Transpose::No, weight_, Transpose::Yes, out, false);
}

}  // namespace compact
