#include <algorithm>

#include "compact/core/dtype.h"
#include "compact/train/engine.h"
#include "compact/train/plan.h"

namespace compact {

namespace {

constexpr std::int64_t kLargestChunk = std::int64_t{256} << 20;

// Micro-batches that divide a rank's sequences of a step, largest first.
std::vector<std::int64_t> micro_batches(const RunConfig& run, int ranks) {
  const std::int64_t sequences = rank_sequences(run, ranks);
  if (run.optimizer.update == "per_layer") return {sequences};
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = sequences; size >= 1; --size)
    if (sequences % size == 0) sizes.push_back(size);
  return sizes;
}

// Sizes of the logits chunk, largest first: from the whole micro-batch to a 256th of it, as long as that is a
// token's row. Still smaller ones would save next to nothing and make products of a few rows.
std::vector<std::int64_t> chunks(const RunConfig& run, const ModelConfig& model) {
  const std::int64_t row = model.vocab_size * size_of(llama_options(run).types.activation);
  const std::int64_t whole = row * run.batch.micro_batch * run.data.sequence_length;
  const std::int64_t least = std::max(row, whole / 256), most = std::min(whole, kLargestChunk);
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = most; size > least; size /= 4) sizes.push_back(size);
  sizes.push_back(least);
  return sizes;
}

}  // namespace

FittingRun fit_run(const RunConfig& run, const ModelConfig& model, std::int64_t bytes, int ranks) {
  std::optional<FittingRun> best, smallest;
  for (const Preset preset : {Preset::Paper, Preset::Lean, Preset::Tight, Preset::Block})
    for (const std::int64_t micro : micro_batches(run, ranks)) {
      FittingRun candidate{run, {}, true};
      candidate.run.batch.micro_batch = micro;
      candidate.run.memory.preset = std::string(name_of(preset));
      const std::vector<std::int64_t> sizes = chunks(candidate.run, model);
      const auto fits = [&](std::int64_t chunk) {
        candidate.run.memory.logits_chunk_bytes = chunk;
        candidate.plan = plan_run(candidate.run, model, ranks);
        return candidate.plan.peak <= bytes;
      };
      if (!fits(sizes.back())) {
        if (!smallest || candidate.plan.peak < smallest->plan.peak) smallest = candidate;
        continue;
      }
      // Larger chunks need more memory and less traffic: the largest that fits, by bisection.
      std::size_t too_large = 0, fitting = sizes.size() - 1;
      FittingRun found = candidate;
      while (too_large < fitting) {
        const std::size_t middle = (too_large + fitting) / 2;
        if (fits(sizes[middle])) {
          fitting = middle;
          found = candidate;
        } else {
          too_large = middle + 1;
        }
      }
      if (!best || found.plan.cost() < best->plan.cost()) best = found;
      if (fitting == 0) break;  // smaller micro-batches only do the same in more pieces
    }
  if (best) return *best;
  smallest->fits = false;
  return *smallest;
}

}  // namespace compact
