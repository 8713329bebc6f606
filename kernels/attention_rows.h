#pragma once
#include <cstdint>

#include "kernels/attention_cpu.h"
#include "kernels/simd.h"

/// What attention does with a row of a tile of scores, and with other rows of floats. `seen` is how many keys
/// of the tile the row's query sees; what a row holds beyond is written as exactly 0.
namespace compact::cpu::COMPACT_ISA {

namespace {

inline constexpr float kLog2e = 1.44269504f;
inline constexpr std::int64_t kRowVecs = kTile / kLanes;

/// vexp2 of vector_math.h for a vector, with the same bits.
[[gnu::always_inline]] inline Vec exp2_of(Vec x) {
  const Vec shifted = x + (12582912.0f + 127.0f);
  const Vec r = x - (shifted - (12582912.0f + 127.0f));
  Vec p = broadcast(0.000153523171f);
  p = fma(p, r, broadcast(0.00134001707f));
  p = fma(p, r, broadcast(0.00961844996f));
  p = fma(p, r, broadcast(0.0555032939f));
  p = fma(p, r, broadcast(0.240226477f));
  p = fma(p, r, broadcast(0.693147182f));
  p = fma(p, r, broadcast(1.0f));
  const Vec y = p * __builtin_bit_cast(Vec, __builtin_bit_cast(IntVec, shifted) << 23);
  return x < -100.0f ? Vec{} : y;
}

/// Vector v of a row of scores, -inf where its keys are not seen.
[[gnu::always_inline]] inline Vec load_seen(const float* row, std::int64_t v, std::int64_t seen) {
  const int left = static_cast<int>(seen - v * kLanes);
  return lane_numbers() < left ? load(row + v * kLanes) : Vec{} - __builtin_inff();
}

/// How far a score may rise above the reference of the running softmax, in powers of two, before all is
/// brought to a new one. Weights then reach 2^kSlack, which costs no precision; most rows keep the reference
/// that their first tile gave.
inline constexpr float kSlack = 8;

/// The running softmax of one query: weights are e^(scale · (score - reference)).
struct RunningRow {
  float* reference;  // [1], -inf before the first tile
  float* sums;       // [16], the sum of weights in kLanes parts
  float* out;        // [width], the sum of weight · value
  std::int64_t width;
};

template <bool All>
[[gnu::always_inline]] inline void softmax_row(float* row, std::int64_t seen, float factor,
                                               const RunningRow& running) {
  const std::int64_t vecs = All ? kRowVecs : (seen + kLanes - 1) / kLanes;
  const auto scores = [&](std::int64_t v) { return All ? load(row + v * kLanes) : load_seen(row, v, seen); };
  Vec tops = Vec{} - __builtin_inff();
  for (std::int64_t v = 0; v < vecs; ++v) tops = larger(scores(v), tops);
  const float top = largest_lane(tops);
  Vec sums = load(running.sums);
  if ((top - *running.reference) * factor > kSlack) {
    const Vec shrink = exp2_of(broadcast((*running.reference - top) * factor));
    *running.reference = top;
    sums *= shrink;
    for (std::int64_t d = 0; d < running.width; d += kLanes)
      store(running.out + d, load(running.out + d) * shrink);
  }
  const Vec reference = broadcast(*running.reference);
  for (std::int64_t v = 0; v < vecs; ++v) {
    const Vec p = exp2_of((scores(v) - reference) * factor);
    store(row + v * kLanes, p);
    sums += p;
  }
  for (std::int64_t v = vecs; v < kRowVecs; ++v) store(row + v * kLanes, Vec{});
  store(running.sums, sums);
}

/// scores become weights p = e^(scale · score - lse), and slopes (which hold dout · v) the gradient of the
/// unscaled scores: scale · p (slope - delta).
template <bool All>
[[gnu::always_inline]] inline void slope_row(float* row, float* slopes, std::int64_t seen, float scale,
                                             float lse, float delta) {
  const std::int64_t vecs = All ? kRowVecs : (seen + kLanes - 1) / kLanes;
  const Vec factor = broadcast(scale), shift = broadcast(-lse);
  for (std::int64_t v = 0; v < vecs; ++v) {
    const Vec score = All ? load(row + v * kLanes) : load_seen(row, v, seen);
    const Vec p = exp2_of(fma(score, factor, shift) * kLog2e);
    const Vec slope = p * (load(slopes + v * kLanes) - delta) * scale;
    store(row + v * kLanes, p);
    // Where the weight is 0 the slope may be what the tile held before.
    store(slopes + v * kLanes, All ? slope : (p == 0.0f ? Vec{} : slope));
  }
  for (std::int64_t v = vecs; v < kRowVecs; ++v)
    store(row + v * kLanes, Vec{}), store(slopes + v * kLanes, Vec{});
}

/// a · b over D elements.
template <typename Element>
[[gnu::always_inline]] inline float row_dot(const Element* a, const Element* b, std::int64_t D) {
  Vec sums{};
  std::int64_t d = 0;
  for (; d + kLanes <= D; d += kLanes) sums = fma(load(a + d), load(b + d), sums);
  float rest = 0;
  for (; d < D; ++d) rest = __builtin_fmaf(to_float(a[d]), to_float(b[d]), rest);
  return sum_of_lanes(sums) + rest;
}

/// Asks for a row [D] that is about to be read: the strided rows of a head are too short for the CPU to
/// guess.
template <typename Element>
[[gnu::always_inline]] inline void prefetch_row(const Element* from, std::int64_t D) {
  constexpr std::int64_t kLine = 64 / sizeof(Element);
  for (std::int64_t d = 0; d < D; d += kLine) __builtin_prefetch(from + d, 0, 2);
}

/// to = factor · from, D elements, rounded to the type of `to`.
template <typename Element>
[[gnu::always_inline]] inline void put_row(const float* from, float factor, std::int64_t D, Element* to) {
#pragma omp simd
  for (std::int64_t d = 0; d < D; ++d) put(to[d], from[d] * factor);
}

}  // namespace

}  // namespace compact::cpu::COMPACT_ISA
