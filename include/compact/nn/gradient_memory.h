#pragma once
#include <cstdint>
#include <string>

#include "compact/memory/context.h"

namespace compact {

/// Gives weight gradients their place in the persistent part of the arena. Ordinarily each has its own. For
/// updates in backward (`optimizer.update` "per_layer") all layers use one place in turn: a layer's gradients
/// are consumed before the next layer's are written, so that memory for one layer is enough (design, section
/// 3).
class GradientMemory {
 public:
  /// Each gradient in its own place; with `trained` false none is taken at all.
  GradientMemory(DType dtype, bool trained) : dtype_(dtype), trained_(trained) {}

  /// From now on gradients lie in one place of `bytes`, which is taken here.
  void share(Context& context, std::int64_t bytes);
  /// The gradients of another layer follow; where places are shared they lie over those of the layer before.
  void next_layer() { used_ = 0; }

  /// A gradient of `shape` for the weight `name`; empty in a model that is not trained.
  Tensor take(Context& context, const std::string& name, Shape shape);
  /// The same in a place of its own in any case.
  Tensor take_own(Context& context, const std::string& name, Shape shape) const;

 private:
  DType dtype_;
  bool trained_;
  Tensor shared_;          // [bytes / 4] F32, carved up by take
  std::int64_t used_ = 0;  // bytes of it that this layer has taken
};

}  // namespace compact
