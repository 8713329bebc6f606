#pragma once
#include <cstdint>

#include "compact/core/host_device.h"

/// From 32-bit random words to normal deviates, the same bits on every instruction set.
///
/// Two words (a, b) give two independent deviates by Box-Muller: radius · cos(angle), radius · sin(angle),
///   radius = sqrt(-2 ln u),  u = (a + 0.5) · 2^-32,  angle = 2π · (b + 0.5) · 2^-32.
/// A Philox block (w0, w1, w2, w3) gives the deviates of (w0, w1), then those of (w2, w3).
/// Anything that evaluates these formulas in double agrees to about 3e-7 of the radius. For the same bits:
///
/// 1. float(w) means the nearest float, made as fma(w >> 16, 65536, w & 65535): both halves are exact.
/// 2. u = fma(float(a), 2^-32, 2^-33). Split u = m · 2^e with m in [sqrt(1/2), sqrt(2)) by its bits.
///    f = m - 1 (exact) where e is not 0. Where e is 0, f = -fma(float(~a), 2^-32, 2^-33), which is u - 1:
///    near 1 the float u has lost the digits of 1 - u, the word has not.
/// 3. ln u = fma(e, ln 2, f + fma(-1/2, f², (f · f²) · R(f))), R of degree 7 by Horner's rule in fma from the
///    highest coefficient (kLog below, lowest first). radius = sqrt(-2 ln u).
/// 4. The quarter turn is q = (b + 2^29) >> 30 (modulo 2^32). What is left is the signed k = b - (q << 30) in
///    [-2^29, 2^29), and x = fma(float(k), 2π 2^-32, π 2^-32) in [-π/4, π/4].
/// 5. y = x², sin x = fma(x · y, S(y), x), cos x = fma(y · y, C(y), fma(-1/2, y, 1)), with S (kSin) and C
///    (kCos) of degree 2 by Horner's rule. An odd q exchanges sine and cosine; then the cosine is negative
///    for q = 1 and 2, the sine for q = 2 and 3.
///
/// Every operation is an fma written out or one correctly rounded +, -, ·, sqrt. So the whole is reproducible
/// wherever the compiler neither contracts nor reorders. R, S and C are our own minimax fits (relative error
/// of the functions 6e-9, 4e-9, 1e-10). All functions have internal linkage: each instruction set keeps its
/// own copy.
namespace compact {

inline constexpr float kLog[8] = {0x1.555554p-2f, -0x1.000226p-2f, 0x1.99a008p-3f, -0x1.547244p-3f,
                                  0x1.22da1ap-3f, -0x1.0d8544p-3f, 0x1.055b82p-3f, -0x1.38b5b0p-4f};
inline constexpr float kSin[3] = {-0x1.555546p-3f, 0x1.110760p-7f, -0x1.994eb4p-13f};
inline constexpr float kCos[3] = {0x1.55554ap-5f, -0x1.6c0c8cp-10f, 0x1.9a025ap-16f};

COMPACT_HOST_DEVICE static inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

/// The float nearest to (w + 0.5) · 2^-32.
COMPACT_HOST_DEVICE static inline float unit_from_word(std::uint32_t w) {
  const float high = static_cast<float>(static_cast<std::int32_t>(w >> 16));
  const float low = static_cast<float>(static_cast<std::int32_t>(w & 0xFFFFu));
  return fused(fused(high, 0x1p16f, low), 0x1p-32f, 0x1p-33f);
}

/// sqrt(-2 ln u) of step 3: finite for every word, at most 6.7638.
COMPACT_HOST_DEVICE static inline float radius_from_word(std::uint32_t w) {
  constexpr std::uint32_t sqrt_half = 0x3F3504F3u;  // the bits of sqrt(1/2)
  const float u = unit_from_word(w), rest = unit_from_word(~w);
  const std::uint32_t above = __builtin_bit_cast(std::uint32_t, u) - sqrt_half;
  const std::int32_t e = static_cast<std::int32_t>(above) >> 23;
  const float m = __builtin_bit_cast(float, (above & 0x7FFFFFu) + sqrt_half);
  const float f = e == 0 ? -rest : m - 1.0f;
  const float z = f * f;
  // Horner's rule written out: a loop in here would keep the loops over words from being vectorised.
  const float p76 = fused(kLog[7], f, kLog[6]), p5 = fused(p76, f, kLog[5]), p4 = fused(p5, f, kLog[4]);
  const float p3 = fused(p4, f, kLog[3]), p2 = fused(p3, f, kLog[2]), p1 = fused(p2, f, kLog[1]);
  const float p = fused(p1, f, kLog[0]);
  const float log1p = f + fused(-0.5f, z, f * z * p);
  const float log_u = fused(static_cast<float>(e), 0x1.62e430p-1f, log1p);
  return __builtin_sqrtf(-2.0f * log_u);
}

/// Cosine and sine of the angle of a word, steps 4 and 5.
COMPACT_HOST_DEVICE static inline void turn_from_word(std::uint32_t w, float& cosine, float& sine) {
  const std::uint32_t q = (w + 0x20000000u) >> 30;
  const std::int32_t k = static_cast<std::int32_t>(w - (q << 30));
  const float x = fused(static_cast<float>(k), 0x1.921fb6p-30f, 0x1.921fb6p-31f);
  const float y = x * x;
  const float s = fused(x * y, fused(fused(kSin[2], y, kSin[1]), y, kSin[0]), x);
  const float c = fused(y * y, fused(fused(kCos[2], y, kCos[1]), y, kCos[0]), fused(-0.5f, y, 1.0f));
  const float other_c = (q & 1u) != 0 ? s : c, other_s = (q & 1u) != 0 ? c : s;
  const std::uint32_t minus_c = ((q + 1u) & 2u) << 30, minus_s = (q & 2u) << 30;
  cosine = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, other_c) ^ minus_c);
  sine = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, other_s) ^ minus_s);
}

/// Two independent N(0, 1) deviates from two words.
COMPACT_HOST_DEVICE static inline void normal_pair(std::uint32_t a, std::uint32_t b, float& first,
                                                   float& second) {
  const float radius = radius_from_word(a);
  turn_from_word(b, first, second);
  first *= radius;
  second *= radius;
}

}  // namespace compact
