#include "kernels/adam_cpu.h"

namespace compact::cpu::COMPACT_ISA {

namespace {
/// One element: the moments move, the return value is lr · (m c1) / (sqrt(v c2) + eps). Each operation rounds
/// by itself or is an fma written out, so the bits depend on no instruction set.
[[gnu::always_inline]] inline float moved(const AdamStep& step, float gradient, float& m, float& v) {
  const float g = gradient * step.gradient_scale;
  m = __builtin_fmaf(step.beta1, m, step.rest1 * g);
  v = __builtin_fmaf(step.beta2, v, step.rest2 * g * g);
  return step.lr * ((m * step.correction1) / (__builtin_sqrtf(v * step.correction2) + step.eps));
}
}  // namespace

void adam_update(const AdamStep& step_, float* __restrict w, const float* __restrict g, float* __restrict m,
                 float* __restrict v, std::int64_t n) {
  const AdamStep step = step_;  // a copy that no store through w, m, v can alias
  const float kept = 1.0f - step.decay;
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < n; ++i) w[i] = __builtin_fmaf(w[i], kept, -moved(step, g[i], m[i], v[i]));
}

void adam_direction(const AdamStep& step_, float* __restrict g, float* __restrict m, float* __restrict v,
                    std::int64_t n) {
  const AdamStep step = step_;
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < n; ++i) g[i] = -moved(step, g[i], m[i], v[i]);
}

void adam_decay(float* w, float decay, std::int64_t n) {
  const float kept = 1.0f - decay;
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < n; ++i) w[i] *= kept;
}

}  // namespace compact::cpu::COMPACT_ISA
