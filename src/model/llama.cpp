#include "compact/model/llama.h"

#include <algorithm>

#include "compact/core/error.h"
#include "compact/kernels/elementwise.h"
#include "compact/kernels/embedding.h"
#include "compact/kernels/rmsnorm.h"
#include "compact/kernels/rope.h"

namespace compact {

namespace {

// A matrix outside the blocks; its gradient is set by the caller.
Parameter make_matrix(Context& context, const std::string& name, Role role, std::int64_t rows, std::int64_t n,
                      DType activation) {
  Parameter p;
  p.members = {{name, role, 0, rows}};
  p.weight = context.arena.persistent(name, {rows, n}, activation, Category::Weights);
  return p;
}

BlockSizes block_sizes(const ModelConfig& config) {
  return {config.hidden_size, config.intermediate_size, config.heads,
          config.kv_heads,    config.head_width(),      static_cast<float>(config.rms_norm_eps)};
}

// Gradient bytes of the largest layer, found by laying each out on the plan device. A tied embedding is not
// among them: head and embedding both add to its gradient, which so lives through the whole backward pass.
std::int64_t largest_layer(const ModelConfig& config, const LlamaOptions& options) {
  const auto bytes_of = [&](auto make) {
    Arena arena(Device::Plan, Arena::kUnlimited);
    Context context(arena);
    GradientMemory gradients(options.types.gradient, true);
    make(context, gradients);
    return arena.ledger().now()[static_cast<std::size_t>(Category::Gradients)];
  };
  const CompactOptions* compact = options.compact ? &*options.compact : nullptr;
  const std::int64_t block = bytes_of([&](Context& context, GradientMemory& gradients) {
    Block(context, 0, block_sizes(config), options.types.activation, compact, gradients);
  });
  const std::int64_t head = bytes_of([&](Context& context, GradientMemory& gradients) {
    gradients.take(context, "norm", {config.hidden_size});
    if (!config.tie_word_embeddings) gradients.take(context, "head", {config.vocab_size, config.hidden_size});
  });
  return std::max(block, head);
}

}  // namespace

Llama::Llama(Context& context, const ModelConfig& config, const LlamaOptions& options)
    : config_(config),
      options_(options),
      rope_table_(context.arena.persistent("rope_table", {options.positions, config.head_width()}, DType::F32,
                                           Category::Workspace)),
      embedding_(make_matrix(context, "model.embed_tokens.weight", Role::Embedding, config.vocab_size,
                             config.hidden_size, options.types.activation)) {
  const DType act = options.types.activation;
  const Shape vocabulary{config.vocab_size, config.hidden_size};
  GradientMemory gradients(options.types.gradient, options.types.trained);
  if (options.share_gradients) gradients.share(context, largest_layer(config, options));
  const std::string& name = embedding_.members.front().name;
  embedding_.gradient = config.tie_word_embeddings ? gradients.take_own(context, name, vocabulary)
                                                   : gradients.take(context, name, vocabulary);
  const CompactOptions* compact = options_.compact ? &*options_.compact : nullptr;
  for (std::int64_t l = 0; l < config.layers; ++l) {
    gradients.next_layer();
    blocks_.emplace_back(context, static_cast<std::uint32_t>(l), block_sizes(config), act, compact,
                         gradients);
  }
  gradients.next_layer();
  norm_ = make_norm(context, "model.norm.weight", config.hidden_size, act, gradients);
  if (!config.tie_word_embeddings) {
    head_ = make_matrix(context, "lm_head.weight", Role::Head, config.vocab_size, config.hidden_size, act);
    head_->gradient = gradients.take(context, "lm_head.weight", vocabulary);
  }
  const Parameter& head = head_ ? *head_ : embedding_;
  loss_.emplace(head.weight, head.gradient, act, options.logits_chunk_bytes, !head_);

  parameters_.push_back(embedding_);
  for (const Block& block : blocks_) {
    first_of_block_.push_back(parameters_.size());
    for (Parameter& p : block.parameters()) parameters_.push_back(std::move(p));
  }
  first_of_block_.push_back(parameters_.size());
  parameters_.push_back(norm_);
  if (head_) parameters_.push_back(*head_);
  std::uint32_t id = 0;
  for (Parameter& p : parameters_) {
    p.id = id;
    id += static_cast<std::uint32_t>(p.members.size());
  }
  rope_table(context, config.rope_theta, rope_table_);
}

void Llama::initialize(Context& context, std::uint64_t seed) {
  for (const Parameter& p : parameters_) {
    std::uint32_t id = p.id;
    for (const Member& member : p.members) {
      if (member.role == Role::Norm)
        fill(context, p.weight, 1.0f);
      else
        fill_normal(context, p.weight.row_range(member.first_row, member.rows),
                    static_cast<float>(config_.initializer_range), seed, id);
      ++id;
    }
  }
}

void Llama::forward_backward(Context& context, const Pass& pass, const Tensor& ids, const Tensor& labels,
                             const Tensor& loss, const OnGradients& on_gradients) {
  require(on_gradients || !options_.share_gradients, "Llama::forward_backward", "nobody takes the gradients");
  const auto complete = [&](std::size_t first, std::size_t end) {
    if (on_gradients) on_gradients(first, end - first);
  };
  Arena& arena = context.arena;
  SavedScope saved(arena);
  const std::int64_t N = pass.tokens(), C = config_.hidden_size;
  const DType act = options_.types.activation;
  const float eps = static_cast<float>(config_.rms_norm_eps);

  // Forward. Each block leaves in its BlockTensors what its backward needs.
  std::vector<BlockTensors> kept(blocks_.size());
  std::vector<std::size_t> marks(blocks_.size());
  std::vector<BlockPolicies> policies(blocks_.size());
  Tensor x = arena.saved("embedding", {N, C}, act);
  embedding_forward(context, ids, embedding_.weight, x);
  for (std::size_t l = 0; l < blocks_.size(); ++l) {
    marks[l] = arena.saved_mark();
    policies[l] = block_policies(options_.preset, blocks_[l].compressed_inputs());
    kept[l].x = x;
    x = blocks_[l].forward(context, pass, policies[l], rope_table_, kept[l], {});
  }

  // Final norm, head and loss; then backward, freeing each block's tensors as it is done. dx [N, C] is the
  // gradient of the residual stream.
  ScratchScope scope(arena);
  const Tensor dx = arena.scratch("dx", {N, C}, act);
  // Gradients that are added to from the first micro-batch on begin at zero; a tied embedding's with the
  // head.
  if (pass.first && !head_) zero(context, embedding_.gradient);
  if (pass.first) zero(context, norm_.gradient);
  {
    ScratchScope head_scope(arena);
    const Tensor rstd = arena.scratch("rstd", {N}, DType::F32);
    const Tensor hidden = arena.scratch("hidden", {N, C}, act);
    rmsnorm_forward(context, x, norm_.weight, eps, hidden, rstd);
    loss_->forward_backward(context, pass, hidden, labels, loss);
    zero(context, dx);
    rmsnorm_backward(context, hidden, x, norm_.weight, rstd, dx, norm_.gradient);
  }
  complete(first_of_block_.back(), parameters_.size());
  for (std::size_t l = blocks_.size(); l-- > 0;) {
    blocks_[l].backward(context, pass, policies[l], rope_table_, kept[l], dx);
    arena.release_saved(marks[l]);
    complete(first_of_block_[l], first_of_block_[l + 1]);
  }
  if (pass.first && head_) zero(context, embedding_.gradient);
  embedding_backward(context, ids, dx, embedding_.gradient);
  complete(0, 1);
}

void Llama::forward(Context& context, const Pass& pass, const Tensor& ids, const Tensor& labels,
                    const Tensor& loss) {
  Arena& arena = context.arena;
  ScratchScope scope(arena);
  const std::int64_t N = pass.tokens(), C = config_.hidden_size;
  const DType act = options_.types.activation;
  Tensor x = arena.scratch("x", {N, C}, act), next = arena.scratch("next", {N, C}, act);
  const Tensor rstd = arena.scratch("rstd", {N}, DType::F32);
  embedding_forward(context, ids, embedding_.weight, x);
  for (const Block& block : blocks_) {
    BlockTensors t;
    t.x = x;
    block.forward(context, pass, nothing_kept(), rope_table_, t, next);
    std::swap(x, next);
  }
  rmsnorm_forward(context, x, norm_.weight, static_cast<float>(config_.rms_norm_eps), next, rstd);
  loss_->forward(context, next, labels, loss);
}

std::vector<BlockCache> Llama::make_caches(Context& context, std::int64_t positions) const {
  std::vector<BlockCache> caches(blocks_.size());
  for (BlockCache& cache : caches) {
    const Shape shape{positions, config_.kv_width()};
    cache.k = context.arena.persistent("cache.k", shape, options_.types.activation, Category::Workspace);
    cache.v = context.arena.persistent("cache.v", shape, options_.types.activation, Category::Workspace);
  }
  return caches;
}

void Llama::decode(Context& context, std::int64_t first, const Tensor& ids,
                   const std::vector<BlockCache>& caches, const Tensor& logits) {
  Arena& arena = context.arena;
  ScratchScope scope(arena);
  const std::int64_t T = ids.elements(), C = config_.hidden_size;
  const DType act = options_.types.activation;
  const Tensor x = arena.scratch("x", {T, C}, act);
  const Tensor hidden = arena.scratch("hidden", {1, C}, act);
  const Tensor rstd = arena.scratch("rstd", {1}, DType::F32);
  embedding_forward(context, ids, embedding_.weight, x);
  for (std::size_t l = 0; l < blocks_.size(); ++l)
    blocks_[l].decode(context, first, rope_table_, caches[l], x);
  rmsnorm_forward(context, x.row_range(T - 1, 1), norm_.weight, static_cast<float>(config_.rms_norm_eps),
                  hidden, rstd);
  loss_->logits(context, hidden, logits.reshaped({1, config_.vocab_size}));
}

std::vector<NamedTensor> Llama::named_weights() const {
  std::vector<NamedTensor> all;
  for (const Parameter& p : parameters_)
    for (const Member& member : p.members) {
      const bool norm = member.role == Role::Norm;
      all.push_back({member.name, norm ? p.weight : p.weight.row_range(member.first_row, member.rows)});
    }
  return all;
}

}  // namespace compact
