#include "run_schema.h"

#include <algorithm>
#include <utility>

namespace compact {
namespace {

constexpr double kMaxSteps = 1e9;          // a step's number is one 32-bit word of the random counters
constexpr double kMaxTokensPerStep = 8e9;  // times kMaxSteps it still fits in 63 bits
constexpr double kMaxRate = 1e30;          // with two factors still a finite float
constexpr double kMaxFactor = 1e3;
constexpr JsonBounds kPositive{.lowest = 0, .open_low = true};
constexpr JsonBounds kRate{.lowest = 0, .highest = kMaxRate, .open_low = true};
constexpr JsonBounds kFactor{.lowest = 0, .highest = kMaxFactor, .open_low = true};
constexpr JsonBounds kFactorOrZero{.lowest = 0, .highest = kMaxFactor};
constexpr JsonBounds kFraction{.lowest = 0, .highest = 1};

const std::vector<std::pair<std::string_view, std::string_view>> kSections = {
    {"data", "Where the tokens come from."},
    {"batch",
     "How many tokens make one step. The micro-batch changes speed and memory, and the result "
     "only by rounding."},
    {"optimizer", "The optimizer and its recipe."},
    {"compact", "Compressed gradients (docs/method.md); read with `optimizer.name` `compact`."},
    {"memory",
     "What is kept between forward and backward (docs/memory.md). Changes no bit of the result but by the "
     "chunk of the head."},
    {"schedule", "The learning rate over the run."},
    {"eval", "How the validation loss is measured."},
    {"train", "Length of the run and what is written on the way."},
    {"dist", "How the ranks of a run that mpirun has started work together (docs/scaling.md)."},
    {"cuda", "How the card is used (docs/cuda.md); read with `device` `cuda`."},
};

std::vector<RunKey> make_keys() {
  const std::vector<std::string_view> dtypes = {"fp32", "bf16"};
  const RunKey::When with_compact{"optimizer.name", {"compact"}};
  const RunKey::When with_bf16{"precision", {"bf16"}};
  const RunKey::When with_cuda{"device", {"cuda"}};
  return {
      {.path = "model",
       .field = [](RunConfig& c) -> RunField { return &c.model; },
       .about = "model file to start from random weights: the keys of a Hugging Face config.json; this or "
                "init_from",
       .may_change = true},
      {.path = "init_from",
       .field = [](RunConfig& c) -> RunField { return &c.init_from; },
       .about = "Hugging Face folder or checkpoint whose weights the run starts from; this or model",
       .may_change = true},

      {.path = "data.train",
       .field = [](RunConfig& c) -> RunField { return &c.data.train; },
       .about = "token shards to train on, a path or a pattern with *",
       .required = true,
       .may_change = true},
      {.path = "data.val",
       .field = [](RunConfig& c) -> RunField { return &c.data.val; },
       .about = "token shards to evaluate on; empty: no evaluation",
       .may_change = true},
      {.path = "data.sequence_length",
       .field = [](RunConfig& c) -> RunField { return &c.data.sequence_length; },
       .about = "tokens of a sequence",
       .bounds = {.lowest = 1, .highest = 1 << 20}},

      {.path = "batch.tokens_per_step",
       .field = [](RunConfig& c) -> RunField { return &c.batch.tokens_per_step; },
       .about = "tokens of one update, over all micro-batches and ranks; a multiple of data.sequence_length",
       .bounds = {.lowest = 1, .highest = kMaxTokensPerStep},
       .required = true},
      {.path = "batch.micro_batch",
       .field = [](RunConfig& c) -> RunField { return &c.batch.micro_batch; },
       .about = "sequences of one forward pass; divides the sequences that a rank has of a step",
       .bounds = {.lowest = 1, .highest = 1 << 20},
       .required = true,
       .may_change = true},

      {.path = "optimizer.name",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.name; },
       .about = "adamw trains full-rank, compact with compressed gradients",
       .choices = {"adamw", "compact"}},
      {.path = "optimizer.lr",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.lr; },
       .about = "highest learning rate of the schedule",
       .bounds = kRate},
      {.path = "optimizer.betas",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.betas; },
       .about = "decay of Adam's first and second moment",
       .bounds = {.lowest = 0, .highest = 1, .open_high = true}},
      {.path = "optimizer.eps",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.eps; },
       .about = "added to the root of the second moment",
       .bounds = {.lowest = 1e-30}},
      {.path = "optimizer.weight_decay",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.weight_decay; },
       .about = "decoupled weight decay; leaves norms alone",
       .bounds = kFactorOrZero},
      {.path = "optimizer.clip_norm",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.clip_norm; },
       .about = "largest norm of all gradients together; null: no clipping",
       .bounds = kPositive},
      {.path = "optimizer.block_scale",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.block_scale; },
       .about = "factor on the learning rate of the matrices inside the blocks",
       .bounds = kFactor,
       .when = {"optimizer.name", {"adamw"}}},
      {.path = "optimizer.state_dtype",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.state_dtype; },
       .about = "numbers of Adam's moments",
       .choices = dtypes},
      {.path = "optimizer.gradient_dtype",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.gradient_dtype; },
       .about = "numbers of the weights' gradients; bf16 needs precision bf16",
       .choices = dtypes},
      {.path = "optimizer.master_weights",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.master_weights; },
       .about = "keep fp32 copies of the weights and update those",
       .when = with_bf16},
      {.path = "optimizer.rounding",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.rounding; },
       .about = "how a bf16 weight without a master takes its update; nearest loses small ones",
       .choices = {"stochastic", "nearest"},
       .when = with_bf16},
      {.path = "optimizer.second_moment",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.second_moment; },
       .about = "of compressed weights: one second moment for each element, or one for each output channel",
       .choices = {"per_element", "per_channel"},
       .when = with_compact},
      {.path = "optimizer.update",
       .field = [](RunConfig& c) -> RunField { return &c.optimizer.update; },
       .about = "per_layer updates a layer in the backward pass as soon as its gradient is complete, so that "
                "one layer's gradient lives; needs one micro-batch a step and no optimizer.clip_norm",
       .choices = {"per_step", "per_layer"},
       .may_change = true},

      {.path = "compact.rank",
       .field = [](RunConfig& c) -> RunField { return &c.compact.rank; },
       .about =
           "width of the projection: up to 1 a fraction of each weight's input width, above 1 a whole number",
       .bounds = kPositive,
       .when = with_compact},
      {.path = "compact.alpha",
       .field = [](RunConfig& c) -> RunField { return &c.compact.alpha; },
       .about = "factor on the updates of compressed weights",
       .bounds = kFactor,
       .when = with_compact},
      {.path = "compact.update_gap",
       .field = [](RunConfig& c) -> RunField { return &c.compact.update_gap; },
       .about = "steps until a new projection is drawn",
       .bounds = {.lowest = 1, .highest = kMaxSteps},
       .when = with_compact},
      {.path = "compact.projection",
       .field = [](RunConfig& c) -> RunField { return &c.compact.projection; },
       .about = "kind of projection: independent normal numbers, orthonormal columns (kept in memory), a "
                "subsampled randomized Hadamard transform, or few entries that are not 0",
       .choices = {"gaussian", "orthonormal", "hadamard", "sparse"},
       .when = with_compact},
      {.path = "compact.out_scale",
       .field = [](RunConfig& c) -> RunField { return &c.compact.out_scale; },
       .about = "o_proj, which is not compressed, moves by out_scale times alpha of its step",
       .bounds = kFactorOrZero,
       .when = with_compact},
      {.path = "compact.sharing",
       .field = [](RunConfig& c) -> RunField { return &c.compact.sharing; },
       .about = "per_input: q, k, v share one projection, gate and up another; per_weight: each has its own",
       .choices = {"per_input", "per_weight"},
       .when = with_compact},
      {.path = "compact.layers",
       .field = [](RunConfig& c) -> RunField { return &c.compact.layers; },
       .about = "linear layers that are compressed",
       .choices = {"q", "k", "v", "gate", "up", "down"},
       .when = with_compact},
      {.path = "compact.moments_at_reseed",
       .field = [](RunConfig& c) -> RunField { return &c.compact.moments_at_reseed; },
       .about = "what becomes of Adam's moments at a new projection: kept as they are, set to 0 (Adam's "
                "exponent too), or the first one carried over",
       .choices = {"keep", "reset", "transport"},
       .when = with_compact},
      {.path = "compact.transport_scale",
       .field = [](RunConfig& c) -> RunField { return &c.compact.transport_scale; },
       .about = "factor on a first moment that is carried over",
       .bounds = kFactorOrZero,
       .when = {"compact.moments_at_reseed", {"transport"}}},

      {.path = "memory.preset",
       .field = [](RunConfig& c) -> RunField { return &c.memory.preset; },
       .about = "what is kept for backward, from most (paper) to least (block)",
       .choices = {"paper", "lean", "tight", "block"},
       .may_change = true},
      {.path = "memory.logits_chunk_bytes",
       .field = [](RunConfig& c) -> RunField { return &c.memory.logits_chunk_bytes; },
       .about = "largest piece of logits that exists at a time, in bytes",
       .bounds = {.lowest = 1, .highest = 1099511627776.0},
       .may_change = true},

      {.path = "schedule.name",
       .field = [](RunConfig& c) -> RunField { return &c.schedule.name; },
       .about = "shape after the warm-up; wsd is flat and then falls straight over the last schedule.decay",
       .choices = {"cosine", "linear", "wsd", "constant"}},
      {.path = "schedule.warmup",
       .field = [](RunConfig& c) -> RunField { return &c.schedule.warmup; },
       .about = "straight rise from 0 to the highest learning rate"},
      {.path = "schedule.decay",
       .field = [](RunConfig& c) -> RunField { return &c.schedule.decay; },
       .about = "length of the final descent",
       .when = {"schedule.name", {"wsd"}}},
      {.path = "schedule.final_fraction",
       .field = [](RunConfig& c) -> RunField { return &c.schedule.final_fraction; },
       .about = "learning rate at the end, as a fraction of the highest",
       .bounds = kFraction,
       .when = {"schedule.name", {"cosine", "linear", "wsd"}}},

      {.path = "eval.protocol",
       .field = [](RunConfig& c) -> RunField { return &c.eval.protocol; },
       .about = "exact: mean over all tokens; galore: the published tables' sum of batch means over N + 1",
       .choices = {"exact", "galore"}},
      {.path = "eval.max_tokens",
       .field = [](RunConfig& c) -> RunField { return &c.eval.max_tokens; },
       .about = "evaluate on the first so many tokens; null: on all",
       .bounds = {.lowest = 1},
       .may_change = true},

      {.path = "train.steps",
       .field = [](RunConfig& c) -> RunField { return &c.train.steps; },
       .about = "updates of the whole run; a resume may raise it",
       .bounds = {.lowest = 1, .highest = kMaxSteps},
       .required = true},
      {.path = "train.eval_every",
       .field = [](RunConfig& c) -> RunField { return &c.train.eval_every; },
       .about = "how often to evaluate; 0: after the last step only",
       .may_change = true},
      {.path = "train.checkpoint_every",
       .field = [](RunConfig& c) -> RunField { return &c.train.checkpoint_every; },
       .about = "how often to write a checkpoint; the last step is always written, 0: only that one",
       .may_change = true},
      {.path = "train.keep",
       .field = [](RunConfig& c) -> RunField { return &c.train.keep; },
       .about = "newest checkpoints that are kept; 0: all",
       .bounds = {.lowest = 0, .highest = 1e9},
       .may_change = true},
      {.path = "train.max_skipped",
       .field = [](RunConfig& c) -> RunField { return &c.train.max_skipped; },
       .about = "steps with a non-finite loss or gradient in a row that end the run",
       .bounds = {.lowest = 1, .highest = kMaxSteps},
       .may_change = true},
      {.path = "train.out_dir",
       .field = [](RunConfig& c) -> RunField { return &c.train.out_dir; },
       .about = "folder of the run: config.resolved.json, metrics.jsonl, run.log, checkpoints",
       .required = true,
       .may_change = true},

      {.path = "cuda.device",
       .field = [](RunConfig& c) -> RunField { return &c.cuda.device; },
       .about =
           "which card, counted from 0 among those that the driver shows; with several ranks that of the "
           "first one of each machine, which the others follow",
       .bounds = {.lowest = 0, .highest = 1023},
       .may_change = true,
       .when = with_cuda},
      {.path = "cuda.graph",
       .field = [](RunConfig& c) -> RunField { return &c.cuda.graph; },
       .about = "run a step as one CUDA graph, which takes the host out of it",
       .may_change = true,
       .when = with_cuda},
      {.path = "cuda.sync_checks",
       .field = [](RunConfig& c) -> RunField { return &c.cuda.sync_checks; },
       .about =
           "wait after every launch, so that an error names the op it came from; slow, and without graph",
       .may_change = true,
       .when = with_cuda},
      {.path = "cuda.tf32",
       .field = [](RunConfig& c) -> RunField { return &c.cuda.tf32; },
       .about =
           "matrix products of fp32 numbers may round them to TF32 (10 bits of mantissa): faster, less exact",
       .may_change = true,
       .when = with_cuda},

      {.path = "dist.shard_optimizer",
       .field = [](RunConfig& c) -> RunField { return &c.dist.shard_optimizer; },
       .about =
           "each rank keeps the optimizer's states and the fp32 copies of the weights for its own rows of "
           "every weight alone, and updates those (ZeRO-1)",
       .may_change = true},
      {.path = "dist.bucket_bytes",
       .field = [](RunConfig& c) -> RunField { return &c.dist.bucket_bytes; },
       .about =
           "gradients are sent once so many bytes of them are complete, while backward goes on; on the CPU "
           "also the memory for what is received",
       .bounds = {.lowest = 1024, .highest = 1 << 30},
       .may_change = true},
      {.path = "dist.timeout_seconds",
       .field = [](RunConfig& c) -> RunField { return &c.dist.timeout_seconds; },
       .about = "how long ranks wait for one that does not answer before the run ends",
       .bounds = {.lowest = 1, .highest = 1e6},
       .may_change = true},

      {.path = "precision",
       .field = [](RunConfig& c) -> RunField { return &c.precision; },
       .about = "numbers of weights and activations",
       .choices = dtypes},
      {.path = "device",
       .field = [](RunConfig& c) -> RunField { return &c.device; },
       .about = "where the run computes",
       .choices = {"cpu", "cuda"},
       .may_change = true},
      {.path = "threads",
       .field = [](RunConfig& c) -> RunField { return &c.threads; },
       .about = "CPU threads; 0: those this process may use, divided by the ranks on the machine",
       .bounds = {.lowest = 0, .highest = 1024},
       .may_change = true},
      {.path = "seed",
       .field = [](RunConfig& c) -> RunField { return &c.seed; },
       .about = "key of all random numbers"},
  };
}

}  // namespace

std::string_view RunKey::section() const {
  const std::size_t dot = path.find('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string_view RunKey::name() const {
  const std::size_t dot = path.find('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

const std::vector<RunKey>& run_keys() {
  static const std::vector<RunKey> keys = make_keys();
  return keys;
}

const RunKey* find_run_key(std::string_view path) {
  const auto& keys = run_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const RunKey& key) { return key.path == path; });
  return found == keys.end() ? nullptr : &*found;
}

std::string_view about_section(std::string_view section) {
  for (const auto& [name, about] : kSections) {
    if (name == section) return about;
  }
  return {};
}

std::vector<std::string_view> run_sections() {
  std::vector<std::string_view> names;
  for (const auto& section : kSections) names.push_back(section.first);
  return names;
}

}  // namespace compact
