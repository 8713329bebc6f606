#include "kernels/cross_entropy_cpu.h"

#include <omp.h>

#include "kernels/element_loops.h"
#include "kernels/vector_math.h"

namespace compact::cpu::COMPACT_ISA {

namespace {
constexpr int kLanes = 64;  // running maxima of a row

[[gnu::always_inline]] inline float larger(float x, float most) { return x > most ? x : most; }

float most_of(const float (&most)[kLanes]) {
  float result = most[0];
  for (int lane = 1; lane < kLanes; ++lane) result = larger(most[lane], result);
  return result;
}

float row_max(const float* x, std::int64_t V) {
  float most[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) most[lane] = x[0];
  std::int64_t j = 0;
  for (; j + kLanes <= V; j += kLanes)
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) most[lane] = larger(x[j + lane], most[lane]);
  for (; j < V; ++j) most[0] = larger(x[j], most[0]);
  return most_of(most);
}
float row_max(const Bf16* x, std::int64_t V) {
  constexpr int half = kLanes / 2;
  float most[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) most[lane] = to_float(x[0]);
  std::int64_t j = 0;
  for (; j + kLanes <= V; j += kLanes)
#pragma omp simd
    for (int lane = 0; lane < half; ++lane) {
      const std::uint32_t pair = reinterpret_cast<const Bf16Pair*>(x + j)[lane];
      most[lane] = larger(low_of(pair), most[lane]);
      most[half + lane] = larger(high_of(pair), most[half + lane]);
    }
  for (; j < V; ++j) most[0] = larger(to_float(x[j]), most[0]);
  return most_of(most);
}

/// e^(x - largest). The product's rounding costs the term a relative error of (largest - x) 2^-24, nothing
/// beside how small it then is.
[[gnu::always_inline]] inline float term(float x, float largest) {
  return vexp2((x - largest) * 1.44269504f);
}
/// The sum of the terms of a row. Where `terms` [V] is not null it receives them; it may be x.
float sum_terms(const float* x, float largest, std::int64_t V, float* terms) {
  const auto f = [=](float value) __attribute__((always_inline)) { return term(value, largest); };
  if (terms == nullptr) return sum_of(V, f, x);
  float sums[kSumLanes] = {};
  std::int64_t j = 0;
  for (; j + kSumLanes <= V; j += kSumLanes)
#pragma omp simd
    for (int lane = 0; lane < kSumLanes; ++lane) {
      const float e = f(x[j + lane]);
      terms[j + lane] = e;
      sums[lane] += e;
    }
  for (int lane = 0; j < V; ++j, ++lane) sums[lane] += terms[j] = f(x[j]);
  return sum_lanes(sums);
}
/// The same. Of each 64 terms first come those of even, then those of odd columns, as the pairs give them.
float sum_terms(const Bf16* x, float largest, std::int64_t V, float* terms) {
  constexpr int half = kSumLanes / 2;
  const auto f = [=](float value) __attribute__((always_inline)) { return term(value, largest); };
  if (terms == nullptr) return sum_of(V, f, x);
  float sums[kSumLanes] = {};
  std::int64_t j = 0;
  for (; j + kSumLanes <= V; j += kSumLanes)
#pragma omp simd
    for (int lane = 0; lane < half; ++lane) {
      const std::uint32_t pair = reinterpret_cast<const Bf16Pair*>(x + j)[lane];
      const float low = f(low_of(pair)), high = f(high_of(pair));
      terms[j + lane] = low;
      terms[j + half + lane] = high;
      sums[lane] += low;
      sums[half + lane] += high;
    }
  for (int lane = 0; j < V; ++j, ++lane) sums[lane] += terms[j] = f(to_float(x[j]));
  return sum_lanes(sums);
}

/// x becomes softmax · scale from its terms, factor = scale / sum. `terms` is x itself.
void row_gradient(float* x, const float* terms, float factor, std::int64_t V) {
  map(
      V, x, [=](float value) __attribute__((always_inline)) { return factor * value; }, terms);
}
/// The same; the terms are in the order of sum_terms.
void row_gradient(Bf16* x, const float* terms, float factor, std::int64_t V) {
  constexpr int half = kSumLanes / 2;
  std::int64_t j = 0;
  for (; j + kSumLanes <= V; j += kSumLanes)
#pragma omp simd
    for (int lane = 0; lane < half; ++lane)
      reinterpret_cast<Bf16Pair*>(x + j)[lane] =
          pair_of(factor * terms[j + lane], factor * terms[j + half + lane]);
  for (; j < V; ++j) put(x[j], factor * terms[j]);
}

/// Where a thread keeps the terms of its row: fp32 logits become them in place.
float* place_of_terms(float* x, float*, std::int64_t) { return x; }
float* place_of_terms(Bf16*, float* terms, std::int64_t V) { return terms + omp_get_thread_num() * V; }

template <typename T>
void rows(T* logits, std::int64_t ld, const std::int32_t* labels, std::int64_t n, std::int64_t V,
          bool gradient, float scale, float* terms, float* loss) {
  // Ignored rows take no time: rows are dealt out one by one.
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t i = 0; i < n; ++i) {
    T* x = logits + i * ld;
    const std::int32_t label = labels[i];
    if (label < 0) {
      loss[i] = 0;
      if (gradient)
        for (std::int64_t j = 0; j < V; ++j) put(x[j], 0.0f);
      continue;
    }
    const float largest = row_max(x, V), target = to_float(x[label]);
    float* row_terms = gradient ? place_of_terms(x, terms, V) : nullptr;
    const float sum = sum_terms(x, largest, V, row_terms);
    // In double: the largest logit may be far above the loss.
    loss[i] = static_cast<float>(static_cast<double>(largest) - static_cast<double>(target) +
                                 __builtin_log(static_cast<double>(sum)));
    if (!gradient) continue;
    row_gradient(x, row_terms, scale / sum, V);
    put(x[label], (term(target, largest) / sum - 1.0f) * scale);
  }
}
}  // namespace

void cross_entropy_rows(float* logits, std::int64_t ld, const std::int32_t* labels, std::int64_t n,
                        std::int64_t V, bool gradient, float scale, float* terms, float* loss) {
  rows(logits, ld, labels, n, V, gradient, scale, terms, loss);
}
void cross_entropy_rows(Bf16* logits, std::int64_t ld, const std::int32_t* labels, std::int64_t n,
                        std::int64_t V, bool gradient, float scale, float* terms, float* loss) {
  rows(logits, ld, labels, n, V, gradient, scale, terms, loss);
}

}  // namespace compact::cpu::COMPACT_ISA
