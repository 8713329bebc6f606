#include "compact/kernels/global_norm.h"

#include <cmath>

#include "kernels/checks.h"
#include "kernels/global_norm_cpu.h"

namespace compact {

void global_norm(Context& context, std::span<const Tensor> tensors, const Tensor& norm) {
  require(norm.elements() == 1 && norm.dtype == DType::F32, "global_norm", "the result is not one F32");
  std::int64_t bytes = 0;
  for (const Tensor& t : tensors) {
    require(is_float(t) && t.contiguous(), "global_norm", "not a contiguous tensor of floats");
    bytes += t.bytes();
  }
  const OpScope timed(context.clock, Op::GlobalNorm, bytes);
  if (context.planning()) return;
  double sum = 0;
  for (const Tensor& t : tensors)
    by_type(t.dtype,
            [&](auto type) { sum += COMPACT_CALL(sum_of_squares, t.as<decltype(type)>(), t.elements()); });
  norm.f32()[0] = static_cast<float>(std::sqrt(sum));
}

float clip_scale(double norm, double max_norm) {
  return norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0f;
}

}  // namespace compact
