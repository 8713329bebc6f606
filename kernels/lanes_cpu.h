#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/simd.h"

/// Blocks of kLanes rows of a matrix turned on their side, so that a vector holds one column of kLanes rows:
/// what mixes the elements of a row then is plain vector arithmetic. For the *_cpu.cpp files alone.
namespace compact::cpu::COMPACT_ISA {

namespace {
typedef std::int32_t LaneIndex __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t LaneBits __attribute__((vector_size(4 * kLanes)));
typedef std::uint16_t HalfBits __attribute__((vector_size(2 * kLanes)));

#ifdef COMPACT_ISA_IS_avx512
constexpr LaneIndex kLaneNumber = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
constexpr LaneIndex kLaneNumber = {0, 1, 2, 3, 4, 5, 6, 7};
#endif

[[gnu::always_inline]] inline Vec load_lanes(const float* p) { return load(p); }
[[gnu::always_inline]] inline Vec load_lanes(const Bf16* p) {
  HalfBits half;
  __builtin_memcpy(&half, p, sizeof(half));
  return (Vec)(__builtin_convertvector(half, LaneBits) << 16);
}
[[gnu::always_inline]] inline void store_lanes(float* p, Vec v) { store(p, v); }
[[gnu::always_inline]] inline void store_lanes(Bf16* p, Vec v) {
#pragma omp simd
  for (long i = 0; i < kLanes; ++i) p[i] = nearest_bf16(v[i]);
}

/// v with the signs of all lanes changed where `sign` is 1 << 31, kept where it is 0.
[[gnu::always_inline]] inline Vec signed_by(Vec v, std::uint32_t sign) { return (Vec)((LaneBits)v ^ sign); }

/// Exchanges the off-diagonal h x h blocks of every 2h x 2h block.
template <int h>
[[gnu::always_inline]] inline void exchange(Vec (&v)[kLanes]) {
  const LaneIndex upper = (kLaneNumber & h) != 0;  // all ones where true
  const LaneIndex low = kLaneNumber + (upper & (static_cast<int>(kLanes) - h)),
                  high = kLaneNumber + h + (upper & (static_cast<int>(kLanes) - h));
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    if ((i & h) == 0) {
      const Vec a = v[i], b = v[i + h];
      v[i] = __builtin_shuffle(a, b, low);
      v[i + h] = __builtin_shuffle(a, b, high);
    }
}

/// Lane j of vector i becomes lane i of vector j.
[[gnu::always_inline]] inline void transpose(Vec (&v)[kLanes]) {
  if constexpr (kLanes == 16) exchange<8>(v);
  exchange<4>(v);
  exchange<2>(v);
  exchange<1>(v);
}

/// v[c] = column c of the block [rows, cols] at x, at most kLanes each way; zeros outside it.
template <typename T>
[[gnu::always_inline]] inline void load_block(Vec (&v)[kLanes], const T* x, std::int64_t ld,
                                              std::int64_t rows, std::int64_t cols) {
  if (rows >= kLanes && cols >= kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = load_lanes(x + i * ld);
  } else {
    float part[kLanes][kLanes] = {};
    for (std::int64_t i = 0; i < rows && i < kLanes; ++i)
      for (std::int64_t j = 0; j < cols && j < kLanes; ++j) part[i][j] = to_float(x[i * ld + j]);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = load(part[i]);
  }
  transpose(v);
}

/// The block [rows, cols] at x = the columns v, rounded to nearest in BF16; v is used up.
template <typename T>
[[gnu::always_inline]] inline void store_block(T* x, std::int64_t ld, std::int64_t rows, std::int64_t cols,
                                               Vec (&v)[kLanes]) {
  transpose(v);
  if (rows >= kLanes && cols >= kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store_lanes(x + i * ld, v[i]);
    return;
  }
  float part[kLanes][kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) store(part[i], v[i]);
  for (std::int64_t i = 0; i < rows && i < kLanes; ++i)
    for (std::int64_t j = 0; j < cols && j < kLanes; ++j) put(x[i * ld + j], part[i][j]);
}
}  // namespace

}  // namespace compact::cpu::COMPACT_ISA
