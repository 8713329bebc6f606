#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compact/io/safetensors.h"
#include "compact/memory/activation_store.h"
#include "compact/memory/context.h"
#include "compact/model/config.h"
#include "compact/nn/block.h"
#include "compact/nn/lm_head_loss.h"

namespace compact {

/// What a run asks of a model beyond its shape.
struct LlamaOptions {
  ModelTypes types;
  Preset preset = Preset::Lean;
  std::optional<CompactOptions> compact;  ///< empty: full rank
  std::int64_t logits_chunk_bytes = 64 << 20;
  bool share_gradients = false;  ///< layers use one place for their gradients in turn; needs OnGradients
  std::int64_t positions = 0;    ///< length of the table of rotations: the longest sequence
};

/// Told in backward, as soon as it is so, that the gradients of parameters [first, first + count) are
/// complete for this micro-batch: first those of final norm and head, then the blocks' from the last to the
/// first, then the embedding's. Losses are complete before.
using OnGradients = std::function<void(std::size_t first, std::size_t count)>;

/// LLaMA: embedding, blocks, final norm, head. Owns no memory: weights, gradients and activations lie in the
/// arena of the context it was made in, and every call must use that context.
class Llama {
 public:
  Llama(Context& context, const ModelConfig& config, const LlamaOptions& options);

  /// Fresh weights: matrices N(0, initializer_range²), norms 1. The same for every device.
  void initialize(Context& context, std::uint64_t seed);

  /// One micro-batch: ids, labels [N] (I32); loss [N] (F32) of every position; gradients are written or
  /// added. `on_gradients` may be empty if gradients are not shared.
  void forward_backward(Context& context, const Pass& pass, const Tensor& ids, const Tensor& labels,
                        const Tensor& loss, const OnGradients& on_gradients);

  /// The losses alone; nothing is kept.
  void forward(Context& context, const Pass& pass, const Tensor& ids, const Tensor& labels,
               const Tensor& loss);

  /// logits [V] (F32) after the last of `ids` [T], which stand at positions first .. first + T - 1.
  void decode(Context& context, std::int64_t first, const Tensor& ids, const std::vector<BlockCache>& caches,
              const Tensor& logits);
  /// Empty caches for `positions` positions, from the persistent part of the arena.
  std::vector<BlockCache> make_caches(Context& context, std::int64_t positions) const;

  const ModelConfig& config() const { return config_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Every weight under its Hugging Face name, in the order of a model file.
  std::vector<NamedTensor> named_weights() const;

 private:
  ModelConfig config_;
  LlamaOptions options_;
  Tensor rope_table_;    // [positions, D] F32
  Parameter embedding_;  // [V, C]
  std::vector<Block> blocks_;
  Parameter norm_;                 // [C]
  std::optional<Parameter> head_;  // [V, C]; none when tied to the embedding
  std::optional<LmHeadLoss> loss_;
  std::vector<Parameter> parameters_;
  std::vector<std::size_t> first_of_block_;  // in parameters_, and of the final norm after the last block
};

}  // namespace compact
