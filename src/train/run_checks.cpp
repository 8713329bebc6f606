#include "run_checks.h"

#include <algorithm>
#include <cmath>

#include "compact/core/error.h"
#include "compact/io/json.h"
#include "compact/model/config.h"
#include "run_schema.h"

namespace compact {
namespace {

void check_start(const RunConfig& c, const std::string& name) {
  if (c.model.empty() && c.init_from.empty()) {
    input_error(
        "{}: give model (a model file, to start from random weights) or init_from (a folder with weights)",
        name);
  }
  if (!c.model.empty() && !c.init_from.empty()) {
    input_error("{}: model is {} and init_from is {}, but a run starts from one of the two; remove the other",
                name, json_quoted(c.model), json_quoted(c.init_from));
  }
}

void check_batch(const RunConfig& c, const std::string& name) {
  const std::int64_t tokens = c.batch.tokens_per_step, length = c.data.sequence_length;
  const std::int64_t sequences = tokens / length;
  if (tokens % length != 0) {
    const std::string below = sequences > 0 ? fmt::format("{} or ", sequences * length) : "";
    input_error(
        "{}: batch.tokens_per_step is {}, but must be a multiple of data.sequence_length {}; {}{} would do",
        name, tokens, length, below, (sequences + 1) * length);
  }
}

// "4 or 8", the divisors of `sequences` next to `micro`.
std::string divisors_beside(std::int64_t micro, std::int64_t sequences) {
  std::int64_t below = 1, above = sequences;
  for (std::int64_t d = 1; d * d <= sequences; ++d) {
    if (sequences % d != 0) continue;
    for (const std::int64_t divisor : {d, sequences / d}) {
      if (divisor < micro) below = std::max(below, divisor);
      if (divisor > micro) above = std::min(above, divisor);
    }
  }
  return above > micro ? fmt::format("{} or {}", below, above) : fmt::format("{}", below);
}

// How the ranks share a step.
void check_shares(const RunConfig& c, const std::string& name, int ranks) {
  const std::int64_t tokens = c.batch.tokens_per_step, length = c.data.sequence_length,
                     micro = c.batch.micro_batch, sequences = tokens / length;
  if (sequences % ranks != 0) {
    const std::int64_t unit = length * ranks * std::min(micro, std::max<std::int64_t>(1, sequences / ranks));
    const std::string below = tokens > unit ? fmt::format("{} or ", tokens / unit * unit) : "";
    input_error(
        "{}: batch.tokens_per_step is {}, which are {} sequences, but {} ranks share them evenly; {}{} would "
        "do",
        name, tokens, sequences, ranks, below, (tokens / unit + 1) * unit);
  }
  const std::int64_t own = sequences / ranks;
  if (own % micro != 0 && ranks == 1)
    input_error(
        "{}: batch.micro_batch is {}, but must divide the {} sequences of a step (batch.tokens_per_step {} "
        "/ data.sequence_length {}); {} would do",
        name, micro, sequences, tokens, length, divisors_beside(micro, sequences));
  if (own % micro != 0)
    input_error(
        "{}: batch.micro_batch is {}, but must divide the {} sequences that each of {} ranks has of a step "
        "(batch.tokens_per_step {} / data.sequence_length {}); {} would do",
        name, micro, own, ranks, tokens, length, divisors_beside(micro, own));
  if (c.optimizer.update == "per_layer" && micro != own)
    input_error(
        "{}: optimizer.update is \"per_layer\", which needs one micro-batch a step, but batch.micro_batch is "
        "{} and {} has {} sequences; set batch.micro_batch to {} or update to \"per_step\"",
        name, micro, ranks == 1 ? "a step" : "a rank", own, own);
}

std::string as_written(const RunConfig& c, std::string_view key) {
  return run_key_json(*find_run_key(key), c);
}

// A warm-up of no steps means none; a number of steps that is longer than the run is a mistake.
void check_schedule(const RunConfig& c, const std::string& name) {
  const std::int64_t steps = c.train.steps;
  const std::int64_t warmup = c.schedule.warmup.steps(steps, c.batch.tokens_per_step);
  if (warmup > steps) {
    input_error("{}: schedule.warmup comes to {} steps, but the run has only {} (train.steps); shorten it",
                name, warmup, steps);
  }
  if (c.schedule.name != "wsd") return;
  const std::int64_t decay = c.schedule.decay.steps(steps, c.batch.tokens_per_step);
  if (decay > steps - warmup) {
    input_error(
        "{}: schedule.warmup ({} steps) and schedule.decay ({} steps) are together longer than the run of "
        "{} (train.steps); shorten one of them",
        name, warmup, decay, steps);
  }
}

// "every 10 %" of a run of 5 steps is no step at all; taken as 0 it would silently mean never.
void check_every(const RunConfig& c, const std::string& name, std::string_view key, const Period& every) {
  if (every.value > 0 && every.steps(c.train.steps, c.batch.tokens_per_step) == 0) {
    input_error(
        "{}: {} is {}, which is less than one step of this run ({} steps of {} tokens); write 1, or 0 for "
        "the last step only",
        name, key, as_written(c, key), c.train.steps, c.batch.tokens_per_step);
  }
}

void check_update(const RunConfig& c, const std::string& name) {
  if (c.optimizer.gradient_dtype == "bf16" && c.precision != "bf16") {
    input_error(
        "{}: optimizer.gradient_dtype is \"bf16\", but precision is \"{}\", whose products give fp32 "
        "gradients; "
        "set precision to \"bf16\" or leave gradient_dtype at \"fp32\"",
        name, c.precision);
  }
  if (c.optimizer.update != "per_layer") return;
  if (c.optimizer.clip_norm) {
    input_error(
        "{}: optimizer.update is \"per_layer\" and optimizer.clip_norm is {}, but the norm of all gradients "
        "is not "
        "known when the first layer is updated; set clip_norm to null or update to \"per_step\"",
        name, as_written(c, "optimizer.clip_norm"));
  }
}

void check_compact(const RunConfig& c, const std::string& name) {
  if (c.compact.rank > 1 && c.compact.rank != std::floor(c.compact.rank)) {
    input_error("{}: compact.rank is {}, but must be a fraction of at most 1 or a whole number above 1", name,
                c.compact.rank);
  }
  if (c.optimizer.name == "compact" && c.optimizer.block_scale != 1) {
    input_error(
        "{}: optimizer.block_scale is {}, but only adamw uses it; with optimizer.name compact set "
        "compact.alpha and leave it out",
        name, c.optimizer.block_scale);
  }
}

}  // namespace

void check_run_config(const RunConfig& config, const std::string& name, int ranks) {
  check_start(config, name);
  check_batch(config, name);
  check_schedule(config, name);
  check_every(config, name, "train.eval_every", config.train.eval_every);
  check_every(config, name, "train.checkpoint_every", config.train.checkpoint_every);
  check_compact(config, name);
  check_update(config, name);
  if (ranks != kUnknownRanks) check_shares(config, name, ranks);
}

void check_against_model(const RunConfig& config, const ModelConfig& model, const std::string& run_file) {
  if (config.optimizer.name != "compact") return;
  for (const std::string& layer : config.compact.layers) {
    const std::int64_t width = layer == "down" ? model.intermediate_size : model.hidden_size;
    const double rank = config.compact.rank;
    if (rank > static_cast<double>(width)) {
      input_error(
          "{}: compact.rank is {}, but the input of {} is only {} wide; lower the rank, or give a fraction "
          "of at most 1",
          run_file, rank, layer, width);
    }
    // Rounded half to even, as the layers do it.
    if (rank <= 1 && std::nearbyint(rank * static_cast<double>(width)) < 1) {
      input_error("{}: compact.rank is {}, which leaves nothing of the {} inputs of {}; use at least {}",
                  run_file, rank, width, layer, json_number_text(1.0 / static_cast<double>(width)));
    }
  }
}

}  // namespace compact
