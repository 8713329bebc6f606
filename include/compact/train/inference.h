#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compact/model/llama.h"
#include "compact/train/evaluator.h"

namespace compact {

/// What a loaded model will be asked for; its memory is exactly that.
struct InferenceSizes {
  std::int64_t batch = 0, T = 0;  ///< batch_loss: sequences and their length; 0: not used
  std::int64_t positions = 0;     ///< next_logits: prompt and generated tokens in all; 0: not used
  std::int64_t prompt = 1;        ///< next_logits: tokens of the first call; later calls feed one
};

/// A model loaded for use, not for training: weights and what one call needs, in one arena.
class InferenceModel {
 public:
  /// Loads a checkpoint or Hugging Face folder; it is computed in the precision of its weights, on the CUDA
  /// device of `queue` where one is given. Throws InputError, RunError.
  InferenceModel(const std::string& folder, const InferenceSizes& sizes, cuda::Queue* queue = nullptr);
  ~InferenceModel();

  const ModelConfig& config() const { return config_; }
  /// Sum of the losses and counted tokens; inputs, labels [sequences, T].
  LossSum batch_loss(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& labels,
                     std::int64_t sequences);
  /// Feeds `ids` after what was fed before and gives the logits [V] of the next token.
  const std::vector<float>& next_logits(const std::vector<std::int32_t>& ids);

 private:
  struct Parts;  // what lies in an arena, made the same way on the plan device
  static void rehearse(Arena& arena, const ModelConfig& config, DType dtype, const InferenceSizes& sizes);

  ModelConfig config_;
  InferenceSizes sizes_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Parts> parts_;
  std::int64_t position_ = 0;
  std::vector<float> logits_;
};

/// How the next token is chosen.
struct SamplingOptions {
  std::int64_t max_tokens = 100;
  double temperature = 0.8;  ///< 0: the likeliest token
  std::int64_t top_k = 0;    ///< 0: all tokens
  std::uint64_t seed = 0;
};

/// The id drawn from `logits` [V] for draw number `draw`: a function of the options and these alone (Philox,
/// stream sampling). Ties go to the lower id.
std::int32_t sample(const std::vector<float>& logits, const SamplingOptions& options, std::uint32_t draw);

}  // namespace compact
