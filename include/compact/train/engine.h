#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compact/data/loader.h"
#include "compact/dist/communicator.h"
#include "compact/model/llama.h"
#include "compact/optim/optimizer.h"
#include "compact/train/gradient_reduction.h"
#include "compact/train/run_config.h"
#include "compact/train/token_buffers.h"

namespace compact {

/// How a run file reads for the model and for the optimizer.
LlamaOptions llama_options(const RunConfig& run);
OptimizerOptions optimizer_options(const RunConfig& run);

/// What an optimizer step gave.
struct StepResult {
  double loss = 0;       ///< mean over the counted tokens of the step
  double grad_norm = 0;  ///< global norm of what is kept: Ĝ for compressed weights
  bool applied = false;  ///< false: something was not finite and no weight changed
};

/// What a rank says of its weights before they are saved.
struct WeightCheck {
  std::string not_finite;   ///< the name of a weight that holds an infinite value or NaN; empty if none does
  std::string fingerprint;  ///< the same on ranks of the same weights: the norm of each
};

/// Model, gradients, optimizer and staging buffers of one rank in one arena, and the step over them. On a
/// plan arena the same code only counts. With several ranks each has its share of a step's sequences, and the
/// whole model; with dist.shard_optimizer it keeps states of its own rows of each parameter alone
/// (compact/dist/rows.h) and updates those.
class Engine {
 public:
  /// `communicator` lives longer. `queue` belongs to a CUDA arena.
  Engine(Arena& arena, const RunConfig& run, const ModelConfig& model, Communicator& communicator,
         cuda::Queue* queue = nullptr);

  /// Fresh weights, a function of the run's seed.
  void initialize();
  /// The weights of a Hugging Face folder or checkpoint, in this run's precision. Throws InputError.
  void load(const std::string& folder);

  WeightCheck check_weights();

  /// One optimizer step over the rank's sequences of `batch` (their number names that of micro-batches) and
  /// those of the other ranks; `batch.targets` is that of all. `index` counts updates from 0, skipped ones
  /// included. A step that is not finite changes no weight, no moment and no exponent; with per-layer updates
  /// it throws RunError instead, because layers may have moved already. All ranks get the same result.
  /// On a CUDA device the whole step is queued, its decisions included, before its result is waited for.
  StepResult step(const StepBatch& batch, std::int64_t index, double lr);

  /// Sum of the losses and number of counted tokens of up to micro_batch sequences: inputs, labels
  /// [sequences, T].
  LossSum evaluate(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& labels,
                   std::int64_t sequences);

  Context& context() { return context_; }
  Llama& model() { return model_; }
  Optimizer& optimizer() { return *optimizer_; }
  /// Adam's t: updates applied so far.
  std::int64_t exponent() const { return exponent_; }
  /// That of the first update with the present P, less one.
  std::int64_t window_start() const { return window_start_; }
  void set_exponents(std::int64_t exponent, std::int64_t window_start) {
    exponent_ = exponent;
    window_start_ = window_start;
  }

 private:
  /// Draws the P that update `index` needs where it is kept in memory, and tells the optimizer where it is a
  /// new one. A function of the index alone, whether the updates before it were skipped or not.
  void enter_window(std::int64_t index);
  /// The list of calls of a step. On a CUDA device nothing in it waits, and it may be run more than once.
  void run_step(const StepBatch& batch, const Update& update);
  /// Judges the gradients of parameters [first, end), which are the sums of all ranks, of a loss that is
  /// known.
  void judge(std::size_t first, std::size_t end);
  void update_parameters(std::size_t first, std::size_t end, const Update& update);
  StepResult result_of(const StepBatch& batch, const Update& update);

  RunConfig run_;
  Communicator& communicator_;
  Context context_;
  Llama model_;
  std::vector<Parameter> own_;  // what this rank updates of the model's parameters, in their order
  std::unique_ptr<Optimizer> optimizer_;
  GradientReduction reduction_;
  std::optional<TokenBuffers> tokens_;
  // What a step is decided by (compact/kernels/update_gate.h): 32 bytes that the host reads at its end.
  Tensor numbers_;                   // [4] F64: the following three
  Tensor loss_total_, squares_;      // [1] F64
  Tensor gate_;                      // [3] F32
  Tensor norm_;                      // [1] F32
  Tensor norms_;                     // [ranks, 1] F32, of each rank's rows; none where all have all
  std::vector<std::size_t> judged_;  // the first parameter of each call of judge in the latest step
  std::int64_t exponent_ = 0, window_start_ = 0;
  std::int64_t window_ = -1;  // whose P is in memory; -1: none yet
};

}  // namespace compact
