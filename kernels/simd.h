#pragma once
// False alarms in the compiler's own header (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "compact/core/bf16.h"

/// One vector register of floats in the instruction set that a *_cpu.cpp file is compiled for. The compiler's
/// own vector type gives arithmetic and comparisons by operators; only what has no operator is named here.
namespace compact::cpu::COMPACT_ISA {

#ifdef COMPACT_ISA_IS_avx512
inline constexpr long kLanes = 16;
typedef float Vec __attribute__((vector_size(64)));
typedef int IntVec __attribute__((vector_size(64)));
[[gnu::always_inline]] inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
[[gnu::always_inline]] inline Vec load(const Bf16* p) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
[[gnu::always_inline]] inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
[[gnu::always_inline]] inline Vec broadcast(float x) { return _mm512_set1_ps(x); }
[[gnu::always_inline]] inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
/// b where a is NaN.
[[gnu::always_inline]] inline Vec larger(Vec a, Vec b) { return _mm512_max_ps(a, b); }
[[gnu::always_inline]] inline __m256 lower_half(Vec v) { return _mm512_castps512_ps256(v); }
[[gnu::always_inline]] inline __m256 upper_half(Vec v) { return _mm512_extractf32x8_ps(v, 1); }
/// 0, 1, 2, ...
[[gnu::always_inline]] inline IntVec lane_numbers() {
  return IntVec{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
}
[[gnu::always_inline]] inline float sum_of_lanes(__m256 v);
[[gnu::always_inline]] inline float largest_lane(__m256 v);
[[gnu::always_inline]] inline float sum_of_lanes(Vec v) {
  return sum_of_lanes(_mm256_add_ps(lower_half(v), upper_half(v)));
}
[[gnu::always_inline]] inline float largest_lane(Vec v) {
  return largest_lane(_mm256_max_ps(lower_half(v), upper_half(v)));
}
#else
inline constexpr long kLanes = 8;
typedef float Vec __attribute__((vector_size(32)));
typedef int IntVec __attribute__((vector_size(32)));
[[gnu::always_inline]] inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
[[gnu::always_inline]] inline Vec load(const Bf16* p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
[[gnu::always_inline]] inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
[[gnu::always_inline]] inline Vec broadcast(float x) { return _mm256_set1_ps(x); }
[[gnu::always_inline]] inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
/// b where a is NaN.
[[gnu::always_inline]] inline Vec larger(Vec a, Vec b) { return _mm256_max_ps(a, b); }
/// 0, 1, 2, ...
[[gnu::always_inline]] inline IntVec lane_numbers() { return IntVec{0, 1, 2, 3, 4, 5, 6, 7}; }
#endif

[[gnu::always_inline]] inline float sum_of_lanes(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
[[gnu::always_inline]] inline float largest_lane(__m256 v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace compact::cpu::COMPACT_ISA
