#include "compact/train/evaluator.h"

#include <algorithm>
#include <cmath>

namespace compact {

double Evaluation::perplexity() const { return std::exp(loss); }
double Evaluation::galore_perplexity() const { return std::exp(galore_loss); }

void EvaluationSum::add(double sum, std::int64_t tokens) {
  if (tokens == 0) return;
  sum_ += sum;
  tokens_ += tokens;
  sum_of_means_ += sum / static_cast<double>(tokens);
  ++batches_;
}

Evaluation EvaluationSum::result() const {
  Evaluation e;
  e.tokens = tokens_;
  if (tokens_ > 0) e.loss = sum_ / static_cast<double>(tokens_);
  e.galore_loss = sum_of_means_ / static_cast<double>(batches_ + 1);
  return e;
}

std::optional<Evaluation> evaluate(const Windows& windows, std::int64_t batch,
                                   std::optional<std::int64_t> max_tokens, const BatchLoss& batch_loss,
                                   const std::function<bool()>& stop) {
  const std::int64_t T = windows.T();
  std::int64_t count = windows.count();
  if (max_tokens) count = std::clamp<std::int64_t>(*max_tokens / T, 1, count);
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(batch * T)), labels(inputs.size());
  EvaluationSum sum;
  for (std::int64_t at = 0; at < count; at += batch) {
    if (stop()) return std::nullopt;
    const std::int64_t n = std::min(batch, count - at);
    for (std::int64_t i = 0; i < n; ++i) windows.read(at + i, inputs.data() + i * T, labels.data() + i * T);
    const LossSum losses = batch_loss(inputs, labels, n);
    sum.add(losses.sum, losses.tokens);
  }
  return sum.result();
}

}  // namespace compact
