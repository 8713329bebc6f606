#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "compact/data/token_shard.h"

namespace compact {

/// Fixed windows over a dataset: packed data gives windows of T+1 tokens at stride T inside each shard (T
/// targets each); rows of T tokens give T inputs whose last position and padding have no target (kIgnoreIndex
/// = -100).
class Windows {
 public:
  /// Throws InputError when there is not one window, naming tokens found and data.sequence_length, or when
  /// rows have another length than T.
  Windows(Dataset dataset, std::int64_t T, std::int64_t vocab_size);
  std::int64_t count() const { return count_; }
  std::int64_t T() const { return T_; }
  const Dataset& dataset() const { return dataset_; }
  /// Window `index` into inputs [T] and labels [T].
  void read(std::int64_t index, std::int32_t* inputs, std::int32_t* labels) const;

 private:
  Dataset dataset_;
  std::int64_t T_ = 0, vocab_size_ = 0, count_ = 0;
  std::vector<std::int64_t> first_window_;  // [shards + 1], windows before each shard
};

/// A rank's sequences of one optimizer step, in order; a micro-batch is a run of rows.
struct StepBatch {
  std::vector<std::int32_t> inputs, labels;  ///< [sequences, T]
  std::int64_t sequences = 0;
  std::int64_t targets = 0;       ///< labels that count, as read; of all ranks once they have told each other
  std::int64_t first_sample = 0;  ///< number of the first sequence in the order of the run
};

/// Which of the ranks that share the sequences of each step: rank k has the k-th part of them.
struct LoaderShare {
  int rank = 0, ranks = 1;
};

/// Gives the batches of a run in a fixed random order: sample s of the run is window order(epoch)[s mod
/// count] with epoch = s / count; the order is a Fisher-Yates shuffle from Philox (stream order; key seed,
/// counter word 2 the epoch), the same for every number of ranks and every micro-batch. A background thread
/// reads ahead; an error there is thrown by next(). `sequences_per_step` are those of all ranks together, of
/// which their number is a divisor.
class Loader {
 public:
  Loader(std::shared_ptr<const Windows> windows, std::uint64_t seed, std::int64_t sequences_per_step,
         std::int64_t first_sample, LoaderShare share = {});
  ~Loader();
  /// The next step's batch; waits for the reader.
  StepBatch next();
  /// Seconds that next() has waited since the start, the first call not counted.
  double waited_seconds() const;

 private:
  struct Reader;
  std::unique_ptr<Reader> reader_;
};

/// The order of one epoch: a permutation of [0, count).
std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::uint32_t epoch, std::int64_t count);

}  // namespace compact
