#include <algorithm>
#include <utility>

#include "compact/core/error.h"
#include "compact/core/labels.h"
#include "compact/data/loader.h"

namespace compact {

Windows::Windows(Dataset dataset, std::int64_t T, std::int64_t vocab_size)
    : dataset_(std::move(dataset)), T_(T), vocab_size_(vocab_size) {
  if (T <= 0) input_error("data.sequence_length must be above 0, found {}", T);
  const bool rows = dataset_.manifest && dataset_.manifest->rows;
  if (rows && dataset_.manifest->row_length != T)
    input_error(
        "{}: the rows of {} have {} tokens but data.sequence_length is {}; set it to {}, or tokenize with "
        "--rows {}",
        dataset_.key, dataset_.glob, dataset_.manifest->row_length, T, dataset_.manifest->row_length, T);
  first_window_.push_back(0);
  for (const auto& shard : dataset_.shards) {
    if (rows && shard->tokens() % T != 0)
      input_error("{} has {} tokens, no whole number of rows of {}", shard->path(), shard->tokens(), T);
    count_ += rows ? shard->tokens() / T : (shard->tokens() - 1) / T;
    first_window_.push_back(count_);
  }
  if (count_ == 0)
    input_error(
        "{}: {} holds {} tokens, fewer than one window of data.sequence_length + 1 = {} in any shard; give "
        "more "
        "text or lower data.sequence_length",
        dataset_.key, dataset_.glob, dataset_.tokens(), T + 1);
}

void Windows::read(std::int64_t index, std::int32_t* inputs, std::int32_t* labels) const {
  if (index < 0 || index >= count_) bug(fmt::format("Windows::read: window {} of {}", index, count_));
  const auto after = std::upper_bound(first_window_.begin(), first_window_.end(), index);
  const auto k = static_cast<std::size_t>(after - first_window_.begin()) - 1;
  const TokenShard& shard = *dataset_.shards[k];
  const std::int64_t first = (index - first_window_[k]) * T_;
  shard.read(first, T_, inputs, vocab_size_);
  std::copy(inputs + 1, inputs + T_, labels);
  if (!dataset_.manifest || !dataset_.manifest->rows) {
    shard.read(first + T_, 1, labels + T_ - 1, vocab_size_);
    return;
  }
  // Where the padding is the end-of-text id itself, the first of the run at the end is the document's own.
  const auto padding = static_cast<std::int32_t>(dataset_.manifest->padding_id);
  std::int64_t length = T_;
  while (length > 0 && inputs[length - 1] == padding) --length;
  if (length > 0 && length < T_ && dataset_.manifest->padding_id == dataset_.manifest->end_of_text) ++length;
  std::fill(labels + std::max<std::int64_t>(length - 1, 0), labels + T_, kIgnoreIndex);
}

}  // namespace compact
