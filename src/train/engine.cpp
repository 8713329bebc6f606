#include "compact/train/engine.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "compact/core/error.h"
#include "compact/kernels/elementwise.h"
#include "compact/kernels/global_norm.h"
#include "compact/model/weights_file.h"

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
  o.share_gradients = run.optimizer.update == "per_layer";
  if (run.optimizer.name == "compact") {
    CompactOptions c;
    c.rank = run.compact.rank;
    c.projection = projection_kind_from(run.compact.projection);
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
  o.master_weights = run.precision == "bf16" && run.optimizer.master_weights;
  o.stochastic_rounding = run.optimizer.rounding == "stochastic";
  o.seed = run.seed;
  o.per_channel = run.optimizer.second_moment == "per_channel";
  o.at_reseed = run.compact.moments_at_reseed == "reset"       ? AtReseed::Reset
                : run.compact.moments_at_reseed == "transport" ? AtReseed::Transport
                                                               : AtReseed::Keep;
  o.transport_scale = run.compact.transport_scale;
  return o;
}

Engine::Engine(Arena& arena, const RunConfig& run, const ModelConfig& model)
    : run_(run), context_(arena), model_(context_, model, llama_options(run)) {
  optimizer_ = make_optimizer(optimizer_options(run));
  optimizer_->allocate(context_, model_.parameters());
  tokens_.emplace(arena, run_.batch.micro_batch * run_.data.sequence_length);
  norm_ = arena.persistent("grad_norm", {1}, DType::F32, Category::Workspace);
}

void Engine::initialize() {
  model_.initialize(context_, run_.seed);
  optimizer_->adopt_weights(context_, model_.parameters());
}

void Engine::load(const std::string& folder) {
  // Masters take the file's precision, and the weights are made from them.
  std::vector<NamedTensor> weights = model_.named_weights(), into = weights;
  const std::vector<NamedTensor> states = optimizer_->states();
  for (NamedTensor& tensor : into)
    for (const NamedTensor& state : states)
      if (state.name == tensor.name + ".master") tensor.data = state.data;
  load_weights(folder, model_.config(), into);
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (into[i].data.data != weights[i].data.data) copy(context_, into[i].data, weights[i].data);
}

std::string Engine::first_weight_not_finite() {
  for (const Parameter& p : model_.parameters())
    if (!std::isfinite(norm_of({p.weight}))) return p.members.front().name;
  return "";
}

void Engine::enter_window(std::int64_t index) {
  const std::vector<Parameter>& parameters = model_.parameters();
  std::map<std::uint32_t, std::vector<std::size_t>> users;  // parameters by the id of their P
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].compression) users[parameters[i].compression->projection.id].push_back(i);
  if (users.empty()) return;
  const Compression& any = *parameters[users.begin()->second.front()].compression;
  const bool kept = keeps_matrix(any.projection.kind);
  const std::int64_t gap = any.update_gap, last = std::max<std::int64_t>(index - 1, 0);

  if (kept && window_ != last / gap)  // after a start or a resume: the P that the moments belong to
    for (const auto& [id, those] : users)
      prepare_projection(context_, parameters[those.front()].compression->at_update(last));
  window_ = index / gap;
  if (window_ == last / gap) return;

  window_start_ = exponent_;
  for (const auto& [id, those] : users) {
    ScratchScope scope(context_.arena);
    const Compression& compression = *parameters[those.front()].compression;
    const Projection before = compression.at_update(last);
    Projection next = compression.at_update(index);
    if (kept) {
      next.matrix = context_.arena.scratch("next projection", {next.n, next.r}, next.dtype);
      prepare_projection(context_, next);
    }
    for (const std::size_t i : those) optimizer_->reseed(context_, parameters[i], i, before, next);
    if (kept) copy(context_, next.matrix, before.matrix);
  }
}

StepResult Engine::step(Communicator& communicator, const StepBatch& batch, std::int64_t index, double lr) {
  const std::int64_t B = run_.batch.micro_batch;
  Pass pass{B, run_.data.sequence_length, index, true,
            1.0f / static_cast<float>(std::max<std::int64_t>(batch.targets, 1))};
  enter_window(index);
  const Update update{index, exponent_ + 1, exponent_ + 1 - window_start_, lr, 1.0f};
  if (run_.optimizer.update == "per_layer") return step_by_layer(communicator, batch, pass, update);

  double losses[1] = {0};
  for (std::int64_t at = 0; at < batch.sequences; at += B) {
    tokens_->stage(batch.inputs, batch.labels, at * pass.T, std::min(B, batch.sequences - at) * pass.T);
    model_.forward_backward(context_, pass, tokens_->ids, tokens_->labels, tokens_->loss, {});
    losses[0] += tokens_->losses().sum;
    pass.first = false;
  }

  std::vector<Tensor> gradients;
  for (const Parameter& p : model_.parameters()) gradients.push_back(p.gradient);
  for (const Tensor& gradient : gradients) communicator.all_reduce_sum(context_, gradient);
  communicator.all_reduce_sum(losses);

  StepResult result;
  result.loss = losses[0] / static_cast<double>(std::max<std::int64_t>(batch.targets, 1));
  result.grad_norm = norm_of(gradients);
  // Without a counted token there is nothing to learn: no weight may move, not even by old moments.
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm) || batch.targets == 0) return result;

  Update clipped = update;
  if (run_.optimizer.clip_norm)
    clipped.gradient_scale = clip_scale(result.grad_norm, *run_.optimizer.clip_norm);
  for (std::size_t i = 0; i < model_.parameters().size(); ++i)
    optimizer_->update(context_, model_.parameters()[i], i, clipped);
  ++exponent_;
  result.applied = true;
  return result;
}

StepResult Engine::step_by_layer(Communicator& communicator, const StepBatch& batch, const Pass& pass,
                                 const Update& update) {
  require(batch.sequences <= pass.B, "Engine::step", "per-layer updates need one micro-batch a step");
  StepResult result;
  tokens_->stage(batch.inputs, batch.labels, 0, batch.sequences * pass.T);
  double squares = 0;
  bool loss_known = false;
  const auto consume = [&](std::size_t first, std::size_t count) {
    if (!loss_known) {
      double losses[1] = {tokens_->losses().sum};
      communicator.all_reduce_sum(losses);
      result.loss = losses[0] / static_cast<double>(std::max<std::int64_t>(batch.targets, 1));
      loss_known = true;
      result.applied = batch.targets > 0;
    }
    std::vector<Tensor> gradients;
    for (std::size_t i = first; i < first + count; ++i) gradients.push_back(model_.parameters()[i].gradient);
    for (const Tensor& gradient : gradients) communicator.all_reduce_sum(context_, gradient);
    const double norm = norm_of(gradients);
    squares += norm * norm;
    if (!std::isfinite(result.loss) || !std::isfinite(norm))
      run_error(
          "update {}: the loss or the gradient of {} is not finite; with optimizer.update \"per_layer\" "
          "layers behind "
          "it may have been updated already, so the run ends here; a checkpoint that it has stays. A smaller "
          "optimizer.lr or more warmup helps; with optimizer.update \"per_step\" such a step is skipped",
          update.index, model_.parameters()[first].members.front().name);
    for (std::size_t i = first; result.applied && i < first + count; ++i)
      optimizer_->update(context_, model_.parameters()[i], i, update);
  };
  model_.forward_backward(context_, pass, tokens_->ids, tokens_->labels, tokens_->loss, consume);
  result.grad_norm = std::sqrt(squares);
  if (result.applied) ++exponent_;
  return result;
}

double Engine::norm_of(const std::vector<Tensor>& gradients) {
  global_norm(context_, gradients, norm_);
  return context_.planning() ? 0.0 : static_cast<double>(norm_.f32()[0]);
}

LossSum Engine::evaluate(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& labels,
                         std::int64_t sequences) {
  const Pass pass{run_.batch.micro_batch, run_.data.sequence_length};
  tokens_->stage(inputs, labels, 0, sequences * pass.T);
  model_.forward(context_, pass, tokens_->ids, tokens_->labels, tokens_->loss);
  return tokens_->losses();
}

}  // namespace compact
