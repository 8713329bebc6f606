#pragma once
#include <cstdint>

#include "compact/core/host_device.h"

namespace compact {

/// bfloat16: the upper half of a float's bits. Kept in memory only; all arithmetic is done in float.
struct Bf16 {
  std::uint16_t bits = 0;
};

// All functions have internal linkage: the CPU loops are compiled for several instruction sets, and a copy
// made for one must not serve the others. They are branch-free, so that loops that call them are vectorised.

[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline float to_float(float x) { return x; }
/// Exact.
[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline float to_float(Bf16 x) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(x.bits) << 16);
}

/// The nearest bfloat16, ties to even: subnormals and signed zeros are kept, what is too large becomes
/// infinite, NaN stays NaN.
[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline Bf16 nearest_bf16(float x) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  // A NaN whose payload sits in the low half must not become infinite, nor may its carry reach the sign.
  const std::uint32_t kept = (bits & 0x7FFFFFFFu) > 0x7F800000u ? bits | 0x00400000u : rounded;
  return {static_cast<std::uint16_t>(kept >> 16)};
}

/// One of the two neighbours of x: away from zero with probability (lower 16 bits of x) / 2^16, if the lower
/// 16 bits of `random` are uniform. A value that bfloat16 has, infinities and NaN among them, is never
/// changed (a NaN may lose its payload).
[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline Bf16 stochastic_bf16(float x, std::uint32_t random) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = bits + (random & 0xFFFFu);
  const std::uint32_t finite = (bits & 0x7F800000u) == 0x7F800000u ? bits : rounded;
  const std::uint32_t kept = (bits & 0x7FFFFFFFu) > 0x7F800000u ? bits | 0x00400000u : finite;
  return {static_cast<std::uint16_t>(kept >> 16)};
}

/// Stores x in the element's own type, rounded to nearest.
[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline void put(float& to, float x) { to = x; }
[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline void put(Bf16& to, float x) { to = nearest_bf16(x); }

}  // namespace compact
