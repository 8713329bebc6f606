#include "compact/train/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "compact/core/error.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/elementwise.h"
#include "compact/kernels/global_norm.h"
#include "compact/kernels/update_gate.h"
#include "compact/memory/host_access.h"
#include "compact/model/weights_file.h"
#include "compact/optim/own_rows.h"

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

Engine::Engine(Arena& arena, const RunConfig& run, const ModelConfig& model, Communicator& communicator,
               cuda::Queue* queue)
    : run_(run),
      communicator_(communicator),
      context_(arena, queue),
      model_(context_, model, llama_options(run)),
      own_(run.dist.shard_optimizer ? own_rows(model_.parameters(), communicator.rank(), communicator.size())
                                    : model_.parameters()),
      optimizer_(make_optimizer(optimizer_options(run))),
      reduction_(communicator, run.dist.shard_optimizer, run.dist.bucket_bytes) {
  optimizer_->allocate(context_, own_);
  // Not more than there is to receive.
  std::int64_t gradients = Arena::kAlignment;
  for (const Parameter& p : model_.parameters())
    gradients += (p.gradient.bytes() / Arena::kAlignment + communicator_.size()) * Arena::kAlignment;
  communicator_.reserve(context_, std::min(run_.dist.bucket_bytes, gradients));
  const std::int64_t sequences = rank_sequences(run_, communicator_.size()), B = run_.batch.micro_batch;
  tokens_.emplace(context_, B * run_.data.sequence_length, (sequences + B - 1) / B);
  numbers_ = arena.persistent("step numbers", {4}, DType::F64, Category::Workspace);
  loss_total_ = numbers_.slice(0, 1);
  squares_ = numbers_.slice(1, 1);
  gate_ = Tensor(numbers_.slice(2, 2).data, {3}, DType::F32);
  norm_ = arena.persistent("grad_norm", {1}, DType::F32, Category::Workspace);
  if (run_.dist.shard_optimizer && communicator_.size() > 1)
    norms_ =
        arena.persistent("grad_norms of ranks", {communicator_.size(), 1}, DType::F32, Category::Workspace);
}

void Engine::initialize() {
  model_.initialize(context_, run_.seed);
  optimizer_->adopt_weights(context_, own_);
}

void Engine::load(const std::string& folder) {
  std::vector<NamedTensor> into = model_.named_weights();
  // Masters, of the own rows alone perhaps, take the file's precision.
  static constexpr std::string_view kMaster = ".master";
  for (NamedTensor state : optimizer_->states())
    if (state.name.ends_with(kMaster)) {
      state.name.resize(state.name.size() - kMaster.size());
      into.push_back(std::move(state));
    }
  load_weights(folder, model_.config(), into, HostAccess(context_.queue));
}

WeightCheck Engine::check_weights() {
  WeightCheck check;
  HostAccess host(context_.queue);
  for (const Parameter& p : model_.parameters()) {
    global_norm(context_, {&p.weight, 1}, norm_);
    const float norm = *static_cast<const float*>(host.read(norm_));
    if (!std::isfinite(norm) && check.not_finite.empty()) check.not_finite = p.members.front().name;
    check.fingerprint.append(reinterpret_cast<const char*>(&norm), sizeof(norm));
  }
  return check;
}

void Engine::enter_window(std::int64_t index) {
  const std::vector<Parameter>& parameters = own_;
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

StepResult Engine::step(const StepBatch& batch, std::int64_t index, double lr) {
  enter_window(index);
  const Update update{index, exponent_ + 1, exponent_ + 1 - window_start_, lr, gate_.f32()};
  tokens_->stage(batch.inputs, batch.labels, batch.sequences * run_.data.sequence_length);
  if (context_.queue == nullptr) {
    run_step(batch, update);
  } else {
    // Only the run that launches counts and is timed.
    const FlopCount flops = context_.flops;
    OpClock* const clock = std::exchange(context_.clock, nullptr);
    bool counted = false;
    context_.queue->step([&] {
      context_.flops = flops;
      context_.clock = counted ? clock : nullptr;
      counted = true;
      run_step(batch, update);
    });
    context_.clock = clock;
  }
  return result_of(batch, update);
}

void Engine::run_step(const StepBatch& batch, const Update& update) {
  const std::int64_t B = run_.batch.micro_batch;
  Pass pass{B, run_.data.sequence_length, update.index, true,
            1.0f / static_cast<float>(std::max<std::int64_t>(batch.targets, 1))};
  const bool by_layer = run_.optimizer.update == "per_layer";
  require(!by_layer || batch.sequences <= B, "Engine::step", "per-layer updates need one micro-batch a step");
  // Without a counted token there is nothing to learn: no weight may move, not even by old moments.
  const bool updates = batch.targets > 0;
  judged_.clear();
  zero(context_, loss_total_);
  open_gate(context_, squares_, gate_);

  const auto reduce = [&](std::size_t first, std::size_t count) {
    reduction_.reduce(context_, std::span(model_.parameters()).subspan(first, count));
  };
  const auto take_layer = [&](std::size_t first, std::size_t count) {
    if (judged_.empty()) {  // the first gradients are those of the head, with which the loss is complete
      add_sum(context_, tokens_->loss, loss_total_);
      communicator_.all_reduce(context_, {&loss_total_, 1});
    }
    reduce(first, count);
    reduction_.finish(context_);
    judge(first, first + count);
    if (updates) update_parameters(first, first + count, update);
  };
  for (std::int64_t at = 0; at < batch.sequences; at += B) {
    const bool last = at + B >= batch.sequences;
    const Tokens tokens = tokens_->pass(at / B);
    model_.forward_backward(context_, pass, tokens.ids, tokens.labels, tokens_->loss,
                            by_layer ? OnGradients(take_layer)
                            : last   ? OnGradients(reduce)
                                     : OnGradients());
    if (!by_layer) add_sum(context_, tokens_->loss, loss_total_);
    pass.first = false;
  }
  if (by_layer) return;
  const std::size_t all = model_.parameters().size();
  communicator_.all_reduce(context_, {&loss_total_, 1});
  reduction_.finish(context_);
  judge(0, all);
  if (updates) update_parameters(0, all, update);
}

void Engine::judge(std::size_t first, std::size_t end) {
  judged_.push_back(first);
  std::vector<Tensor> gradients;
  for (std::size_t i = first; i < end; ++i)
    if (own_[i].gradient.elements() > 0) gradients.push_back(own_[i].gradient);
  if (norms_.empty()) {
    global_norm(context_, gradients, norm_);
  } else {
    const Tensor mine = norms_.row_range(communicator_.rank(), 1);
    zero(context_, mine);
    if (!gradients.empty()) global_norm(context_, gradients, mine);
    communicator_.gather(context_, {&norms_, 1});
    communicator_.wait(context_);
    global_norm(context_, {&norms_, 1}, norm_);
  }
  update_gate(context_, loss_total_, norm_, run_.optimizer.clip_norm.value_or(0.0), squares_, gate_);
}

void Engine::update_parameters(std::size_t first, std::size_t end, const Update& update) {
  for (std::size_t i = first; i < end; ++i) {
    optimizer_->update(context_, own_[i], i, update);
    reduction_.gather(context_, model_.parameters()[i]);
  }
  reduction_.finish(context_);
}

StepResult Engine::result_of(const StepBatch& batch, const Update& update) {
  StepResult result;
  if (context_.planning()) return result;
  HostAccess host(context_.queue);
  const auto* numbers = static_cast<const double*>(host.read(numbers_));
  float gate[3];
  std::memcpy(gate, numbers + 2, sizeof(gate));
  result.loss = numbers[0] / static_cast<double>(std::max<std::int64_t>(batch.targets, 1));
  result.grad_norm = std::sqrt(numbers[1]);
  const bool open = gate[1] != 0;
  if (!open && run_.optimizer.update == "per_layer") {
    const std::size_t layer = judged_[static_cast<std::size_t>(gate[2])];
    run_error(
        "update {}: the loss or the gradient of {} is not finite; with optimizer.update \"per_layer\" "
        "layers behind "
        "it may have been updated already, so the run ends here; a checkpoint that it has stays. A smaller "
        "optimizer.lr or more warmup helps; with optimizer.update \"per_step\" such a step is skipped",
        update.index, model_.parameters()[layer].members.front().name);
  }
  result.applied = open && batch.targets > 0;
  if (result.applied) ++exponent_;
  return result;
}

LossSum Engine::evaluate(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& labels,
                         std::int64_t sequences) {
  const Pass pass{run_.batch.micro_batch, run_.data.sequence_length};
  tokens_->stage(inputs, labels, sequences * pass.T);
  const Tokens tokens = tokens_->pass(0);
  model_.forward(context_, pass, tokens.ids, tokens.labels, tokens_->loss);
  return tokens_->losses();
}

}  // namespace compact
