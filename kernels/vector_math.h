#pragma once
#include "compact/core/host_device.h"

/// Elementary functions for the inner loops of *_cpu.cpp: branch-free, so that the compiler vectorises a loop
/// which calls them. All have internal linkage, because a copy compiled for AVX-512 must not serve other
/// callers. Every multiply-add is written out: AVX2 and AVX-512 give the same bits.
namespace compact::cpu {

/// e^r for |r| <= ln 2 / 2.
[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline float exp_near_zero(float r) {
  float p = 0.00138131448f;
  p = __builtin_fmaf(p, r, 0.00836941879f);
  p = __builtin_fmaf(p, r, 0.041668456f);
  p = __builtin_fmaf(p, r, 0.166665152f);
  p = __builtin_fmaf(p, r, 0.49999994f);
  p = __builtin_fmaf(p, r, 1.0f);
  return __builtin_fmaf(p, r, 1.0f);
}

/// e^x, within 1.1 units in the last place. Below -87.33 (results under 2^-126) and for -inf exactly 0; above
/// 88.7228 inf; NaN stays NaN.
[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline float vexp(float x) {
  // Adding 1.5·2^23 rounds x / ln 2 to an integer n, which then stands in the low bits of the sum.
  const float shifted = __builtin_fmaf(x, 1.44269504f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  float r = __builtin_fmaf(n, -0.693147182f, x);
  r = __builtin_fmaf(n, 1.90465432e-9f, r);  // the rest of ln 2
  const float p = exp_near_zero(r);
  // 2^n p: n is added to the exponent. p < 1 where n = 128, so the exponent never overflows.
  const unsigned bits = __builtin_bit_cast(unsigned, p) + (__builtin_bit_cast(unsigned, shifted) << 23);
  const float y = __builtin_bit_cast(float, bits);
  const float low = x < -87.33f ? 0.0f : y;
  return x <= 88.7228317f ? low : x + __builtin_inff();  // NaN + inf is NaN
}

/// 2^x for x <= 127, within 1.1 units in the last place; below -100 and for -inf exactly 0 (a softmax weight
/// under 1e-30 adds nothing, and products with subnormal numbers are slow); NaN stays NaN.
[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline float vexp2(float x) {
  // As above; with 127 more the low bits already are the exponent of 2^n.
  const float shifted = x + (12582912.0f + 127.0f);
  const float r = x - (shifted - (12582912.0f + 127.0f));
  float p = 0.000153523171f;
  p = __builtin_fmaf(p, r, 0.00134001707f);
  p = __builtin_fmaf(p, r, 0.00961844996f);
  p = __builtin_fmaf(p, r, 0.0555032939f);
  p = __builtin_fmaf(p, r, 0.240226477f);
  p = __builtin_fmaf(p, r, 0.693147182f);
  p = __builtin_fmaf(p, r, 1.0f);
  const float y = p * __builtin_bit_cast(float, __builtin_bit_cast(unsigned, shifted) << 23);
  return x < -100.0f ? 0.0f : y;
}

/// 1 / (1 + e^-x), within 3 units in the last place in both tails. Below -88.4 exactly 0; NaN stays NaN.
[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline float vsigmoid(float x) {
  // t is x kept within [-89, 64], where the sum below is inf and 1 already. The bits of floats of one sign
  // are ordered as integers are, and a minimum of integers is one instruction; of two bounds on a float the
  // compiler makes a tree of masks.
  const int bits = __builtin_bit_cast(int, x), most = __builtin_bit_cast(int, 64.0f);
  const unsigned bounded = __builtin_bit_cast(unsigned, bits < most ? bits : most),
                 least = __builtin_bit_cast(unsigned, -89.0f);
  const float t = __builtin_bit_cast(float, bounded < least ? bounded : least);
  // e^-t = 2^n e^r as in vexp; with 127 more the low bits already are the exponent of 2^n.
  const float shifted = __builtin_fmaf(t, -1.44269504f, 12582912.0f + 127.0f);
  const float n = shifted - (12582912.0f + 127.0f);
  float r = __builtin_fmaf(n, -0.693147182f, -t);
  r = __builtin_fmaf(n, 1.90465432e-9f, r);
  const float power = __builtin_bit_cast(float, __builtin_bit_cast(unsigned, shifted) << 23);
  const float s = 1.0f / __builtin_fmaf(exp_near_zero(r), power, 1.0f);
  return x != x ? x : s;
}

}  // namespace compact::cpu
