#pragma once
#include <immintrin.h>

/// One vector register of floats in the instruction set that a *_cpu.cpp file is compiled for. The compiler's
/// own vector type gives arithmetic by operators; only what has no operator is named here.
namespace compact::cpu::COMPACT_ISA {

#ifdef COMPACT_ISA_IS_avx512
inline constexpr long kLanes = 16;
typedef float Vec __attribute__((vector_size(64)));
[[gnu::always_inline]] inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
[[gnu::always_inline]] inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
[[gnu::always_inline]] inline Vec broadcast(float x) { return _mm512_set1_ps(x); }
[[gnu::always_inline]] inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
#else
inline constexpr long kLanes = 8;
typedef float Vec __attribute__((vector_size(32)));
[[gnu::always_inline]] inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
[[gnu::always_inline]] inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
[[gnu::always_inline]] inline Vec broadcast(float x) { return _mm256_set1_ps(x); }
[[gnu::always_inline]] inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
#endif

}  // namespace compact::cpu::COMPACT_ISA
