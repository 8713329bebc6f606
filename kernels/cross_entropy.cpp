#include "compact/kernels/cross_entropy.h"

#include <omp.h>

#include <string>

#include "kernels/checks.h"
#include "kernels/cross_entropy_cpu.h"
#include "kernels/cross_entropy_cuda.h"

namespace compact {

namespace {
void run(Context& context, const char* op, const Tensor& logits, const Tensor& labels, bool gradient,
         float scale, const Tensor& loss) {
  require(is_float(logits) && logits.cols() >= 1, op, "logits are not [n, V] of floats");
  require(labels.dtype == DType::I32 && labels.contiguous() && labels.elements() == logits.rows(), op,
          "labels are not [n] of I32");
  require(loss.dtype == DType::F32 && loss.contiguous() && loss.elements() == logits.rows(), op,
          "loss is not [n] of F32");
  const OpScope timed(context.clock, Op::CrossEntropy,
                      bytes_of({logits, labels, loss}) + (gradient ? logits.bytes() : 0));
  const std::int64_t n = logits.rows(), V = logits.cols();
  const ScratchScope scope(context.arena);
  Tensor terms;  // [threads, V]: rounded to BF16 in their own place they would be no good for the gradient
  if (gradient && logits.dtype == DType::BF16 && !context.on_cuda())
    terms = context.arena.scratch("cross-entropy terms", {omp_get_max_threads(), V}, DType::F32);
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::cross_entropy(*context.queue, logits, labels, gradient, scale, loss);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t label = labels.i32()[i];
    if (label != kIgnoreIndex && (label < 0 || label >= V))
      bug(std::string(op) + ": label " + std::to_string(label) + " of row " + std::to_string(i) +
          " is not in [0, " + std::to_string(V) + ")");
  }
  by_type(logits.dtype, [&](auto type) {
    using T = decltype(type);
    COMPACT_CALL(cross_entropy_rows, logits.as<T>(), logits.ld, labels.i32(), n, V, gradient, scale,
                 terms.as<float>(), loss.f32());
  });
}
}  // namespace

void cross_entropy_forward(Context& context, const Tensor& logits, const Tensor& labels, const Tensor& loss) {
  run(context, "cross_entropy_forward", logits, labels, false, 0, loss);
}

void cross_entropy_backward(Context& context, const Tensor& logits, const Tensor& labels, float scale,
                            const Tensor& loss) {
  run(context, "cross_entropy_backward", logits, labels, true, scale, loss);
}

}  // namespace compact
