#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "compact/data/loader.h"
#include "compact/dist/communicator.h"
#include "compact/train/token_buffers.h"

namespace compact {

/// Losses of a validation set.
struct Evaluation {
  double loss = 0;         ///< exact: sum of the losses / counted tokens
  double galore_loss = 0;  ///< the published divisor: sum of the batches' mean losses / (batches + 1)
  std::int64_t tokens = 0;
  double perplexity() const;
  double galore_perplexity() const;
};

/// Adds up batches of a validation set.
class EvaluationSum {
 public:
  /// `sum` of the losses of `tokens` counted tokens; a batch without any counts for neither mean.
  void add(double sum, std::int64_t tokens);
  /// What all ranks have added.
  Evaluation result(Communicator& communicator) const;

 private:
  double sum_ = 0, sum_of_means_ = 0;
  std::int64_t tokens_ = 0, batches_ = 0;
};

/// Loss sum and counted tokens of some sequences: inputs, labels [sequences, T], sequences.
using BatchLoss =
    std::function<LossSum(const std::vector<std::int32_t>&, const std::vector<std::int32_t>&, std::int64_t)>;

/// Runs `batch_loss` over the windows in order, `batch` at a time, up to `max_tokens` positions; the ranks
/// take batches in turn. Empty if `stop` became true on the way on any of them.
std::optional<Evaluation> evaluate(const Windows& windows, std::int64_t batch,
                                   std::optional<std::int64_t> max_tokens, const BatchLoss& batch_loss,
                                   const std::function<bool()>& stop, Communicator& communicator);

}  // namespace compact
