#include "compact/kernels/global_norm.h"

#include <cmath>

#include "kernels/checks.h"
#include "kernels/gate_rule.h"
#include "kernels/global_norm_cpu.h"
#include "kernels/global_norm_cuda.h"

namespace compact {

void global_norm(Context& context, std::span<const Tensor> tensors, const Tensor& norm) {
  require(norm.elements() == 1 && norm.dtype == DType::F32, "global_norm", "the result is not one F32");
  std::int64_t bytes = 0;
  for (const Tensor& t : tensors) {
    require(is_float(t) && t.contiguous(), "global_norm", "not a contiguous tensor of floats");
    bytes += t.bytes();
  }
  const OpScope timed(context.clock, Op::GlobalNorm, bytes);
  const ScratchScope scope(context.arena);
  Tensor partials;
  if (context.on_cuda())
    partials = context.arena.scratch("sums of squares", {cuda::global_norm_partials(tensors)}, DType::F64);
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::global_norm(*context.queue, tensors, partials, norm);
  double sum = 0;
  for (const Tensor& t : tensors)
    by_type(t.dtype,
            [&](auto type) { sum += COMPACT_CALL(sum_of_squares, t.as<decltype(type)>(), t.elements()); });
  norm.f32()[0] = static_cast<float>(std::sqrt(sum));
}

float clip_scale(double norm, double max_norm) { return clip_factor(norm, max_norm); }

}  // namespace compact
