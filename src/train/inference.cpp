#include "compact/train/inference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compact/core/error.h"
#include "compact/core/philox.h"
#include "compact/io/checkpoint.h"
#include "compact/memory/host_access.h"
#include "compact/model/weights_file.h"
#include "compact/train/cuda_device.h"

namespace compact {

struct InferenceModel::Parts {
  Parts(Arena& arena, cuda::Queue* queue, const ModelConfig& config, DType dtype, const InferenceSizes& sizes)
      : context(arena, queue),
        model(context, config, options(dtype, std::max(sizes.T, sizes.positions))),
        tokens(context, std::max(sizes.batch * sizes.T, sizes.positions), 1) {
    logits = arena.persistent("logits", {config.vocab_size}, DType::F32, Category::Workspace);
    if (sizes.positions > 0) caches = model.make_caches(context, sizes.positions);
  }

  static LlamaOptions options(DType dtype, std::int64_t positions) {
    LlamaOptions o;
    o.types.activation = dtype;
    o.types.trained = false;
    o.positions = positions;
    return o;
  }

  Context context;
  Llama model;
  TokenBuffers tokens;
  Tensor logits;  // [V] F32
  const std::vector<std::int32_t> no_labels;
  std::vector<BlockCache> caches;
};

void InferenceModel::rehearse(Arena& arena, const ModelConfig& config, DType dtype,
                              const InferenceSizes& sizes) {
  Parts parts(arena, nullptr, config, dtype, sizes);
  const Tokens tokens = parts.tokens.pass(0);
  if (sizes.batch > 0) {
    parts.model.forward(parts.context, {sizes.batch, sizes.T}, tokens.ids, tokens.labels, parts.tokens.loss);
    parts.tokens.losses();
  }
  if (sizes.positions == 0) return;
  parts.model.decode(parts.context, 0, tokens.ids.slice(0, sizes.prompt), parts.caches, parts.logits);
  parts.model.decode(parts.context, sizes.positions - 1, tokens.ids.slice(0, 1), parts.caches, parts.logits);
}

InferenceModel::InferenceModel(const std::string& folder, const InferenceSizes& sizes, cuda::Queue* queue)
    : config_(load_model_config(folder + "/config.json")), sizes_(sizes) {
  const DType dtype = weights_dtype(folder);
  const Device device = queue == nullptr ? Device::Cpu : Device::Cuda;
  if (queue != nullptr) check_cuda_computes(config_, folder);
  Arena plan(Device::Plan, Arena::kUnlimited, device);
  rehearse(plan, config_, dtype, sizes);
  require_memory(queue, plan.ledger().peak(), memory_table(plan.ledger().at_peak()));
  arena_ = std::make_unique<Arena>(device, plan.ledger().peak());
  parts_ = std::make_unique<Parts>(*arena_, queue, config_, dtype, sizes);
  load_weights(folder, config_, parts_->model.named_weights(), HostAccess(queue));
}

InferenceModel::~InferenceModel() = default;

LossSum InferenceModel::batch_loss(const std::vector<std::int32_t>& inputs,
                                   const std::vector<std::int32_t>& labels, std::int64_t sequences) {
  parts_->tokens.stage(inputs, labels, sequences * sizes_.T);
  const Tokens tokens = parts_->tokens.pass(0);
  parts_->model.forward(parts_->context, {sizes_.batch, sizes_.T}, tokens.ids, tokens.labels,
                        parts_->tokens.loss);
  return parts_->tokens.losses();
}

const std::vector<float>& InferenceModel::next_logits(const std::vector<std::int32_t>& ids) {
  const auto n = static_cast<std::int64_t>(ids.size());
  parts_->tokens.stage(ids, parts_->no_labels, n);
  parts_->model.decode(parts_->context, position_, parts_->tokens.pass(0).ids.slice(0, n), parts_->caches,
                       parts_->logits);
  position_ += n;
  HostAccess host(parts_->context.queue);
  const auto* logits = static_cast<const float*>(host.read(parts_->logits));
  logits_.assign(logits, logits + config_.vocab_size);
  return logits_;
}

std::int32_t sample(const std::vector<float>& logits, const SamplingOptions& options, std::uint32_t draw) {
  if (options.temperature == 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](std::int32_t id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]); };
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    return at(a) != at(b) ? at(a) > at(b) : a < b;
  };
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(order.size())) {
    std::partial_sort(order.begin(), order.begin() + options.top_k, order.end(), likelier);
    order.resize(static_cast<std::size_t>(options.top_k));
  }
  double highest = -INFINITY;
  for (std::int32_t id : order) highest = std::max(highest, at(id));
  std::vector<double> weights;
  for (std::int32_t id : order) weights.push_back(std::exp((at(id) - highest) / options.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto words = philox({draw, 0, 0, stream_word(Stream::Sampling, 0)}, options.seed);
  double left = total * (static_cast<double>(words[0]) + 0.5) / 4294967296.0;
  for (std::size_t i = 0; i < weights.size(); ++i)
    if ((left -= weights[i]) <= 0) return order[i];
  return order.back();
}

}  // namespace compact
