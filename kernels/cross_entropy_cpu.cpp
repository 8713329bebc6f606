#include "kernels/cross_entropy_cpu.h"

#include "kernels/vector_math.h"

namespace compact::cpu::COMPACT_ISA {

namespace {
// Running maxima and sums of a row: enough independent ones to hide the latency of an addition, and the same
// number on every instruction set, so that the order of a sum is the same too.
constexpr int kLanes = 64;

float row_max(const float* x, std::int64_t V) {
  float most[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) most[lane] = x[0];
  std::int64_t j = 0;
  for (; j + kLanes <= V; j += kLanes)
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane)
      most[lane] = x[j + lane] > most[lane] ? x[j + lane] : most[lane];
  for (; j < V; ++j) most[0] = x[j] > most[0] ? x[j] : most[0];
  float result = most[0];
  for (int lane = 1; lane < kLanes; ++lane) result = most[lane] > result ? most[lane] : result;
  return result;
}

/// The sum of e^(x - largest); `out`, where there is one, receives the terms (it may be x).
template <bool keep>
float row_exp_sum(const float* x, float largest, std::int64_t V, float* out) {
  float sums[kLanes] = {};
  std::int64_t j = 0;
  for (; j + kLanes <= V; j += kLanes)
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      const float e = vexp(x[j + lane] - largest);
      if constexpr (keep) out[j + lane] = e;
      sums[lane] += e;
    }
  for (int lane = 0; j < V; ++j, ++lane) {
    const float e = vexp(x[j] - largest);
    if constexpr (keep) out[j] = e;
    sums[lane] += e;
  }
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}
}  // namespace

void cross_entropy_rows(float* logits, std::int64_t ld, const std::int32_t* labels, std::int64_t n,
                        std::int64_t V, bool gradient, float scale, float* loss) {
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < n; ++i) {
    float* x = logits + i * ld;
    const std::int32_t label = labels[i];
    if (label < 0) {
      loss[i] = 0;
      if (gradient)
        for (std::int64_t j = 0; j < V; ++j) x[j] = 0;
      continue;
    }
    const float largest = row_max(x, V), target = x[label];
    const float sum =
        gradient ? row_exp_sum<true>(x, largest, V, x) : row_exp_sum<false>(x, largest, V, nullptr);
    // In double: the largest logit may be far above the loss.
    loss[i] = static_cast<float>(static_cast<double>(largest) - static_cast<double>(target) +
                                 __builtin_log(static_cast<double>(sum)));
    if (!gradient) continue;
    const float at_label = (x[label] / sum - 1.0f) * scale, factor = scale / sum;
#pragma omp simd
    for (std::int64_t j = 0; j < V; ++j) x[j] *= factor;
    x[label] = at_label;
  }
}

}  // namespace compact::cpu::COMPACT_ISA
