#include "compact/train/token_buffers.h"

#include <algorithm>

#include "compact/core/labels.h"

namespace compact {

TokenBuffers::TokenBuffers(Arena& arena, std::int64_t tokens)
    : ids(arena.persistent("ids", {tokens}, DType::I32, Category::Workspace)),
      labels(arena.persistent("labels", {tokens}, DType::I32, Category::Workspace)),
      loss(arena.persistent("loss", {tokens}, DType::F32, Category::Workspace)) {}

void TokenBuffers::stage(const std::vector<std::int32_t>& from_inputs,
                         const std::vector<std::int32_t>& from_labels, std::int64_t first,
                         std::int64_t count) {
  if (ids.data == nullptr) return;
  std::copy_n(from_inputs.begin() + first, count, ids.i32());
  std::copy_n(from_labels.begin() + first, count, labels.i32());
  std::fill(ids.i32() + count, ids.i32() + ids.elements(), 0);
  std::fill(labels.i32() + count, labels.i32() + labels.elements(), kIgnoreIndex);
}

LossSum TokenBuffers::losses() const {
  LossSum result;
  if (ids.data == nullptr) return result;
  for (std::int64_t i = 0; i < loss.elements(); ++i) {
    result.sum += static_cast<double>(loss.f32()[i]);
    result.tokens += labels.i32()[i] != kIgnoreIndex;
  }
  return result;
}

}  // namespace compact
