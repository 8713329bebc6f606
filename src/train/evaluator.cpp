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

Evaluation EvaluationSum::result(Communicator& communicator) const {
  double all[] = {sum_, static_cast<double>(tokens_), sum_of_means_, static_cast<double>(batches_)};
  communicator.sum(all);
  Evaluation e;
  e.tokens = static_cast<std::int64_t>(all[1]);
  if (e.tokens > 0) e.loss = all[0] / all[1];
  e.galore_loss = all[2] / (all[3] + 1);
  return e;
}

std::optional<Evaluation> evaluate(const Windows& windows, std::int64_t batch,
                                   std::optional<std::int64_t> max_tokens, const BatchLoss& batch_loss,
                                   const std::function<bool()>& stop, Communicator& communicator) {
  const std::int64_t T = windows.T();
  std::int64_t count = windows.count();
  if (max_tokens) count = std::clamp<std::int64_t>(*max_tokens / T, 1, count);
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(batch * T)), labels(inputs.size());
  EvaluationSum sum;
  double stopped = 0;
  together(communicator, [&] {
    for (std::int64_t at = communicator.rank() * batch; at < count; at += communicator.size() * batch) {
      if (stop()) {
        stopped = 1;
        return;
      }
      const std::int64_t n = std::min(batch, count - at);
      for (std::int64_t i = 0; i < n; ++i) windows.read(at + i, inputs.data() + i * T, labels.data() + i * T);
      const LossSum losses = batch_loss(inputs, labels, n);
      sum.add(losses.sum, losses.tokens);
    }
  });
  communicator.sum({&stopped, 1});
  if (stopped > 0) return std::nullopt;
  return sum.result(communicator);
}

}  // namespace compact
