#include "compact/nn/gradient_memory.h"

#include "compact/core/error.h"

namespace compact {

void GradientMemory::share(Context& context, std::int64_t bytes) {
  require(bytes > 0 && bytes % Arena::kAlignment == 0, "GradientMemory::share", "not whole allocations");
  shared_ = context.arena.persistent("gradients of a layer", {bytes / 4}, DType::F32, Category::Gradients);
}

Tensor GradientMemory::take(Context& context, const std::string& name, Shape shape) {
  if (!trained_ || shared_.empty()) return take_own(context, name, shape);
  const std::int64_t bytes =
      (shape.elements() * size_of(dtype_) + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  require(used_ + bytes <= shared_.bytes(), "GradientMemory::take", "more than a layer's gradients");
  auto* at = shared_.data == nullptr ? nullptr : shared_.as<std::byte>() + used_;
  used_ += bytes;
  return Tensor(at, shape, dtype_);
}

Tensor GradientMemory::take_own(Context& context, const std::string& name, Shape shape) const {
  if (!trained_) return {};
  return context.arena.persistent(name + ".gradient", shape, dtype_, Category::Gradients);
}

}  // namespace compact
