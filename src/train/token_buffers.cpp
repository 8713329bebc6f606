#include "compact/train/token_buffers.h"

#include <algorithm>

#include "compact/core/error.h"
#include "compact/core/labels.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/elementwise.h"
#include "compact/kernels/update_gate.h"
#include "compact/memory/host_access.h"

namespace compact {

TokenBuffers::TokenBuffers(Context& context, std::int64_t tokens, std::int64_t passes)
    : context_(context), tokens_(tokens) {
  Arena& arena = context.arena;
  const std::int64_t places = context.on_cuda() ? passes * tokens : tokens;
  ids_ = arena.persistent("ids", {places}, DType::I32, Category::Workspace);
  labels_ = arena.persistent("labels", {places}, DType::I32, Category::Workspace);
  loss = arena.persistent("loss", {tokens}, DType::F32, Category::Workspace);
  total_ = arena.persistent("loss total", {1}, DType::F64, Category::Workspace);
  if (context.on_cuda() && !context.planning())
    pinned_ = std::make_unique<cuda::PinnedMemory>(ids_.bytes() + labels_.bytes());
}

TokenBuffers::~TokenBuffers() = default;

void TokenBuffers::fill(std::int64_t first, std::int32_t* ids, std::int32_t* labels) const {
  const std::int64_t count = std::clamp<std::int64_t>(count_ - first, 0, tokens_);
  std::copy_n(inputs_from_->begin() + std::min(first, count_), count, ids);
  std::fill(ids + count, ids + tokens_, 0);
  const bool any = !labels_from_->empty();
  if (any) std::copy_n(labels_from_->begin() + std::min(first, count_), count, labels);
  std::fill(labels + (any ? count : 0), labels + tokens_, kIgnoreIndex);
}

void TokenBuffers::stage(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& labels,
                         std::int64_t count) {
  inputs_from_ = &inputs;
  labels_from_ = &labels;
  count_ = count;
  if (pinned_ == nullptr) return;
  require(count <= ids_.elements(), "TokenBuffers::stage", "more tokens than there is room for");
  auto* ids = static_cast<std::int32_t*>(pinned_->data());
  std::int32_t* labels_to = ids + ids_.elements();
  for (std::int64_t first = 0; first < ids_.elements(); first += tokens_)
    fill(first, ids + first, labels_to + first);
  // The buffer is written to again only after the results of these passes have been waited for.
  context_.queue->upload_later(ids, ids_.data, ids_.bytes());
  context_.queue->upload_later(labels_to, labels_.data, labels_.bytes());
}

Tokens TokenBuffers::pass(std::int64_t i) {
  if (context_.on_cuda()) return {ids_.slice(i * tokens_, tokens_), labels_.slice(i * tokens_, tokens_)};
  if (!context_.planning()) fill(i * tokens_, ids_.i32(), labels_.i32());
  return {ids_, labels_};
}

LossSum TokenBuffers::losses() {
  zero(context_, total_);
  add_sum(context_, loss, total_);
  LossSum result;
  if (context_.planning()) return result;
  result.sum = *static_cast<const double*>(HostAccess(context_.queue).read(total_));
  for (std::int64_t i = 0; i < std::min(count_, tokens_); ++i)
    result.tokens += (*labels_from_)[static_cast<std::size_t>(i)] != kIgnoreIndex;
  return result;
}

}  // namespace compact
