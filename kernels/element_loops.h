#pragma once
#include <cstdint>

#include "compact/core/bf16.h"

/// Loops over the elements of rows of one type, F32 or BF16, with arithmetic in float: for *_cpu.cpp files.
///
/// BF16 is taken two neighbours at a time, as one 32-bit word: lower and upper half become floats by a shift
/// or a mask, and go back by the same, while single elements would cost the vector code a widening and a
/// narrowing shuffle each. All have internal linkage (an instruction set keeps its own copy); the functions
/// that are passed in should be always_inline lambdas.
namespace compact::cpu {

/// Elements 2k (lower half) and 2k + 1 of a BF16 row.
typedef std::uint32_t Bf16Pair __attribute__((may_alias, aligned(2)));

[[gnu::always_inline]] static inline float low_of(std::uint32_t pair) {
  return __builtin_bit_cast(float, pair << 16);
}
[[gnu::always_inline]] static inline float high_of(std::uint32_t pair) {
  return __builtin_bit_cast(float, pair & 0xFFFF0000u);
}
/// `nearest_bf16` in the upper half of a word, for results of arithmetic on elements of BF16 rows. Where such
/// a result is NaN it is an operand's or the CPU's own, whose lower half is 0: rounding leaves it alone.
[[gnu::always_inline]] static inline std::uint32_t nearest_upper(float x) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  return bits + 0x7FFFu + ((bits >> 16) & 1u);
}
[[gnu::always_inline]] static inline std::uint32_t pair_of(float low, float high) {
  return (nearest_upper(low) >> 16) | (nearest_upper(high) & 0xFFFF0000u);
}

struct TwoFloats {
  float first, second;
};
struct ThreeFloats : TwoFloats {
  float third;
};

namespace {

/// out[i] = f(in[i]...) for i < n. out may be one of the inputs.
template <typename F, typename... In>
[[gnu::always_inline]] inline void map(std::int64_t n, float* out, F f, const In*... in) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = f(in[i]...);
}
template <typename F, typename... In>
[[gnu::always_inline]] inline void map(std::int64_t n, Bf16* out, F f, const In*... in) {
  Bf16Pair* pairs = reinterpret_cast<Bf16Pair*>(out);
#pragma omp simd
  for (std::int64_t k = 0; k < n / 2; ++k)
    pairs[k] = pair_of(f(low_of(reinterpret_cast<const Bf16Pair*>(in)[k])...),
                       f(high_of(reinterpret_cast<const Bf16Pair*>(in)[k])...));
  if (n % 2 != 0) out[n - 1] = nearest_bf16(f(to_float(in[n - 1])...));
}

/// a[i], b[i] = f(in[i]...), which gives TwoFloats. a and b may be inputs.
template <typename F, typename... In>
[[gnu::always_inline]] inline void map_two(std::int64_t n, float* a, float* b, F f, const In*... in) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const TwoFloats result = f(in[i]...);
    a[i] = result.first;
    b[i] = result.second;
  }
}
template <typename F, typename... In>
[[gnu::always_inline]] inline void map_two(std::int64_t n, Bf16* a, Bf16* b, F f, const In*... in) {
  Bf16Pair *p = reinterpret_cast<Bf16Pair*>(a), *q = reinterpret_cast<Bf16Pair*>(b);
#pragma omp simd
  for (std::int64_t k = 0; k < n / 2; ++k) {
    const TwoFloats low = f(low_of(reinterpret_cast<const Bf16Pair*>(in)[k])...),
                    high = f(high_of(reinterpret_cast<const Bf16Pair*>(in)[k])...);
    p[k] = pair_of(low.first, high.first);
    q[k] = pair_of(low.second, high.second);
  }
  if (n % 2 != 0) {
    const TwoFloats last = f(to_float(in[n - 1])...);
    a[n - 1] = nearest_bf16(last.first);
    b[n - 1] = nearest_bf16(last.second);
  }
}

/// a[i], b[i], c[i] = f(in[i]...), which gives ThreeFloats. Each may be an input.
template <typename F, typename... In>
[[gnu::always_inline]] inline void map_three(std::int64_t n, float* a, float* b, float* c, F f,
                                             const In*... in) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const ThreeFloats result = f(in[i]...);
    a[i] = result.first;
    b[i] = result.second;
    c[i] = result.third;
  }
}
template <typename F, typename... In>
[[gnu::always_inline]] inline void map_three(std::int64_t n, Bf16* a, Bf16* b, Bf16* c, F f,
                                             const In*... in) {
  Bf16Pair *p = reinterpret_cast<Bf16Pair*>(a), *q = reinterpret_cast<Bf16Pair*>(b),
           *r = reinterpret_cast<Bf16Pair*>(c);
#pragma omp simd
  for (std::int64_t k = 0; k < n / 2; ++k) {
    const ThreeFloats low = f(low_of(reinterpret_cast<const Bf16Pair*>(in)[k])...),
                      high = f(high_of(reinterpret_cast<const Bf16Pair*>(in)[k])...);
    p[k] = pair_of(low.first, high.first);
    q[k] = pair_of(low.second, high.second);
    r[k] = pair_of(low.third, high.third);
  }
  if (n % 2 != 0) {
    const ThreeFloats last = f(to_float(in[n - 1])...);
    a[n - 1] = nearest_bf16(last.first);
    b[n - 1] = nearest_bf16(last.second);
    c[n - 1] = nearest_bf16(last.third);
  }
}

// Running sums of a row: enough independent ones to hide the latency of an addition, and the same number on
// every instruction set, so that the order of a sum is the same too.
constexpr int kSumLanes = 64;

[[gnu::always_inline]] inline float sum_lanes(float (&sums)[kSumLanes]) {
  for (int width = kSumLanes / 2; width > 0; width /= 2)
#pragma omp simd
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}

/// The sum of f(in[i]...) for i < n.
template <typename F, typename... In>
[[gnu::always_inline]] inline float sum_of(std::int64_t n, F f, const float* first, const In*... in) {
  float sums[kSumLanes] = {};
  std::int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes)
#pragma omp simd
    for (int lane = 0; lane < kSumLanes; ++lane) sums[lane] += f(first[i + lane], in[i + lane]...);
  for (int lane = 0; i < n; ++i, ++lane) sums[lane] += f(first[i], in[i]...);
  return sum_lanes(sums);
}
template <typename F, typename... In>
[[gnu::always_inline]] inline float sum_of(std::int64_t n, F f, const Bf16* first, const In*... in) {
  constexpr int half = kSumLanes / 2;
  float sums[kSumLanes] = {};
  std::int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes)
#pragma omp simd
    for (int lane = 0; lane < half; ++lane) {
      sums[lane] += f(low_of(reinterpret_cast<const Bf16Pair*>(first + i)[lane]),
                      low_of(reinterpret_cast<const Bf16Pair*>(in + i)[lane])...);
      sums[half + lane] += f(high_of(reinterpret_cast<const Bf16Pair*>(first + i)[lane]),
                             high_of(reinterpret_cast<const Bf16Pair*>(in + i)[lane])...);
    }
  for (int lane = 0; i < n; ++i, ++lane) sums[lane] += f(to_float(first[i]), to_float(in[i])...);
  return sum_lanes(sums);
}

}  // namespace

}  // namespace compact::cpu
