#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace compact {

struct ModelConfig;

/// A length of training as the user writes it: 100 or "100s" steps, "1e6t" tokens, "10%" of the run.
struct Period {
  enum class Unit { Steps, Tokens, Percent };
  double value = 0;
  Unit unit = Unit::Steps;
  /// In whole steps, rounded down ("10%" of 1005 steps is 100).
  std::int64_t steps(std::int64_t total_steps, std::int64_t tokens_per_step) const;
  bool operator==(const Period&) const = default;
};

/// How a run uses the card; read with device "cuda".
struct CudaConfig {
  std::int64_t device = 0;   ///< ordinal among the cards that the driver shows
  bool graph = true;         ///< a step runs as one CUDA graph
  bool sync_checks = false;  ///< wait after each launch, so that an error names its op; no graph
  bool tf32 = false;         ///< fp32 products round their operands to TF32
};

/// A run file with every default filled in (design, section 6). The schema in run_schema.cpp is the only
/// description of the keys: validation, defaults, hints, config.resolved.json, --help and docs/config.md come
/// from it.
struct RunConfig {
  std::string model;      ///< path of a model file; empty with init_from
  std::string init_from;  ///< a Hugging Face folder or checkpoint to start from

  struct Data {
    std::string train, val;              ///< globs of token shards; val may be empty: no evaluation
    std::int64_t sequence_length = 256;  ///< T
  } data;

  struct Batch {
    std::int64_t tokens_per_step = 0;
    std::int64_t micro_batch = 0;  ///< sequences a forward pass
  } batch;

  struct Optimizer {
    std::string name = "adamw";  ///< adamw, compact
    double lr = 0.001;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-6;
    double weight_decay = 0.0;
    std::optional<double> clip_norm;
    double block_scale = 1.0;                   ///< adamw only: lr factor of the matrices inside the blocks
    std::string state_dtype = "fp32";           ///< fp32, bf16
    std::string gradient_dtype = "fp32";        ///< fp32, bf16
    bool master_weights = false;                ///< bf16 only: fp32 copies of the weights are what is updated
    std::string rounding = "stochastic";        ///< bf16 only, of the weights: stochastic, nearest
    std::string second_moment = "per_element";  ///< compact only: per_element, per_channel
    std::string update = "per_step";            ///< per_step, per_layer
  } optimizer;

  struct Compact {
    double rank = 0.25;  ///< <= 1: fraction of each weight's input width; above 1: absolute
    double alpha = 0.25;
    std::int64_t update_gap = 50;
    std::string projection = "gaussian";  ///< gaussian, orthonormal, hadamard, sparse
    double out_scale = 0.5;               ///< o_proj's update is scaled by out_scale · alpha
    std::string sharing = "per_input";    ///< per_input, per_weight
    std::vector<std::string> layers = {"q", "k", "v", "gate", "up", "down"};
    std::string moments_at_reseed = "keep";  ///< keep, reset, transport
    double transport_scale = 1.0;
  } compact;

  struct Memory {
    std::string preset = "lean";  ///< paper, lean, tight, block
    std::int64_t logits_chunk_bytes = 64 << 20;
  } memory;

  struct Schedule {
    std::string name = "cosine";  ///< cosine, linear, wsd, constant
    Period warmup{10, Period::Unit::Percent};
    Period decay{10, Period::Unit::Percent};  ///< wsd only: length of the final descent
    double final_fraction = 0.1;
  } schedule;

  struct Eval {
    std::string protocol = "exact";  ///< exact, galore
    std::optional<std::int64_t> max_tokens;
  } eval;

  struct Train {
    std::int64_t steps = 0;
    Period eval_every{100, Period::Unit::Steps};        ///< 0: only after the last step
    Period checkpoint_every{500, Period::Unit::Steps};  ///< 0: only after the last step
    std::int64_t keep = 2;                              ///< newest checkpoints kept; 0 keeps all
    std::int64_t max_skipped = 10;                      ///< non-finite steps in a row before the run stops
    std::string out_dir;
  } train;

  CudaConfig cuda;

  struct Dist {
    bool shard_optimizer = false;          ///< a rank keeps states of its own rows of each parameter alone
    std::int64_t bucket_bytes = 25 << 20;  ///< gradients are sent once there are so many
    double timeout_seconds = 600;          ///< how long ranks wait for each other
  } dist;

  std::string precision = "fp32";  ///< fp32, bf16
  std::string device = "cpu";      ///< cpu, cuda
  std::int64_t threads = 0;        ///< 0: the affinity mask divided by the ranks on the machine
  std::uint64_t seed = 42;
};

/// For a config of which it does not matter how ranks share its steps.
inline constexpr int kUnknownRanks = 0;

/// Reads a run file, applies "key.path=value" overrides, checks everything that can be checked without
/// opening other files, also that `ranks` can share its steps. Throws InputError (file, key, found, expected,
/// nearest key). Paths stay as written: relative to the working directory.
RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides, int ranks = 1);

/// The same from a JSON text already at hand (a resolved config); `name` is used in messages.
RunConfig parse_run_config(std::string_view json_text, const std::string& name, int ranks = 1);

/// Sequences of a step that each of `ranks` ranks has.
inline std::int64_t rank_sequences(const RunConfig& run, int ranks) {
  return run.batch.tokens_per_step / run.data.sequence_length / ranks;
}

/// Every key with its value, defaults included, as pretty JSON; parse_run_config reads it back to the same
/// struct.
std::string resolved_json(const RunConfig& config);

/// Checks what needs the model: ranks against the widths of the compressed layers. `run_file` is used in
/// messages. Throws InputError.
void check_against_model(const RunConfig& config, const ModelConfig& model, const std::string& run_file);

/// Keys that differ from their default but change nothing in this run ("compact.rank" with optimizer.name
/// adamw).
std::vector<std::string> unused_settings(const RunConfig& config);

/// One difference between two resolved configs.
struct ConfigDifference {
  std::string key;          ///< "optimizer.lr"
  std::string was, now;     ///< as JSON
  bool may_change = false;  ///< a resume may change it: nothing beyond rounding depends on it
};
std::vector<ConfigDifference> compare_configs(const RunConfig& was, const RunConfig& now);

/// docs/config.md, whole.
std::string config_reference_markdown();
/// The keys in short, for `compact train --help`.
std::string config_help();

}  // namespace compact
