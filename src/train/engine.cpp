#include "compact/train/engine.h"

#include <algorithm>
#include <cmath>

#include "compact/core/error.h"
#include "compact/kernels/global_norm.h"

namespace compact {

namespace {

Role compressed_role(const std::string& name) {
  static constexpr std::pair<std::string_view, Role> roles[] = {{"q", Role::Q},   {"k", Role::K},
                                                                {"v", Role::V},   {"gate", Role::Gate},
                                                                {"up", Role::Up}, {"down", Role::Down}};
  for (const auto& [text, role] : roles)
    if (text == name) return role;
  bug("compact.layers: " + name);
}

DType dtype_from(const std::string& precision) { return precision == "bf16" ? DType::BF16 : DType::F32; }

}  // namespace

LlamaOptions llama_options(const RunConfig& run) {
  LlamaOptions o;
  o.types.activation = dtype_from(run.precision);
  o.types.gradient = dtype_from(run.optimizer.gradient_dtype);
  o.preset = preset_from(run.memory.preset);
  o.logits_chunk_bytes = run.memory.logits_chunk_bytes;
  o.positions = run.data.sequence_length;
  if (run.optimizer.name == "compact") {
    CompactOptions c;
    c.rank = run.compact.rank;
    c.sharing = run.compact.sharing == "per_weight" ? Sharing::PerWeight : Sharing::PerInput;
    c.update_gap = run.compact.update_gap;
    c.seed = run.seed;
    for (const std::string& layer : run.compact.layers) c.layers.push_back(compressed_role(layer));
    o.compact = c;
  }
  return o;
}

OptimizerOptions optimizer_options(const RunConfig& run) {
  OptimizerOptions o;
  o.name = run.optimizer.name;
  o.beta1 = run.optimizer.betas[0];
  o.beta2 = run.optimizer.betas[1];
  o.eps = run.optimizer.eps;
  o.weight_decay = run.optimizer.weight_decay;
  o.block_scale = run.optimizer.block_scale;
  o.alpha = run.compact.alpha;
  o.out_scale = run.compact.out_scale;
  o.state_dtype = dtype_from(run.optimizer.state_dtype);
  return o;
}

Engine::Engine(Arena& arena, const RunConfig& run, const ModelConfig& model)
    : run_(run), context_(arena), model_(context_, model, llama_options(run)) {
  optimizer_ = make_optimizer(optimizer_options(run));
  optimizer_->allocate(context_, model_.parameters());
  tokens_.emplace(arena, run_.batch.micro_batch * run_.data.sequence_length);
  norm_ = arena.persistent("grad_norm", {1}, DType::F32, Category::Workspace);
}

StepResult Engine::step(Communicator& communicator, const StepBatch& batch, std::int64_t index, double lr) {
  const std::int64_t B = run_.batch.micro_batch;
  Pass pass{B, run_.data.sequence_length, index, true,
            1.0f / static_cast<float>(std::max<std::int64_t>(batch.targets, 1))};
  double losses[1] = {0};
  model_.zero_gradients(context_);
  for (std::int64_t at = 0; at < batch.sequences; at += B) {
    tokens_->stage(batch.inputs, batch.labels, at * pass.T, std::min(B, batch.sequences - at) * pass.T);
    model_.forward_backward(context_, pass, tokens_->ids, tokens_->labels, tokens_->loss);
    losses[0] += tokens_->losses().sum;
    pass.first = false;
  }

  std::vector<Tensor> gradients;
  for (const Parameter& p : model_.parameters()) gradients.push_back(p.gradient);
  for (const Tensor& gradient : gradients) communicator.all_reduce_sum(context_, gradient);
  communicator.all_reduce_sum(losses);
  global_norm(context_, gradients, norm_);

  StepResult result;
  result.loss = losses[0] / static_cast<double>(std::max<std::int64_t>(batch.targets, 1));
  result.grad_norm = context_.planning() ? 0.0 : static_cast<double>(norm_.f32()[0]);
  // Without a counted token there is nothing to learn: no weight may move, not even by old moments.
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm) || batch.targets == 0) return result;

  Update update{index, exponent_ + 1, lr, 1.0f};
  if (run_.optimizer.clip_norm)
    update.gradient_scale = clip_scale(result.grad_norm, *run_.optimizer.clip_norm);
  for (std::size_t i = 0; i < model_.parameters().size(); ++i)
    optimizer_->update(context_, model_.parameters()[i], i, update);
  ++exponent_;
  result.applied = true;
  return result;
}

LossSum Engine::evaluate(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& labels,
                         std::int64_t sequences) {
  const Pass pass{run_.batch.micro_batch, run_.data.sequence_length};
  tokens_->stage(inputs, labels, 0, sequences * pass.T);
  model_.forward(context_, pass, tokens_->ids, tokens_->labels, tokens_->loss);
  return tokens_->losses();
}

}  // namespace compact
