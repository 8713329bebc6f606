#pragma once
#include <immintrin.h>

#include <cstdint>

#include "compact/kernels/rounding.h"
#include "kernels/philox_cpu.h"

/// Random words for rounding (compact/kernels/rounding.h), for the *_cpu.cpp files alone: internal linkage,
/// one instruction set each.
namespace compact::cpu::COMPACT_ISA {

constexpr std::int64_t kRandomWords = 64;  // words made together: neighbouring elements of one row

namespace {
using RandomLanes = PhiloxLanes;
#ifdef COMPACT_ISA_IS_avx512
// The masked forms, with all lanes: the plain ones warn of an uninitialised value in g++ 12.
inline RandomLanes even_lanes(RandomLanes a, RandomLanes b) {
  return (RandomLanes)_mm512_maskz_unpacklo_epi64(0xFF, (__m512i)a, (__m512i)b);
}
inline RandomLanes odd_lanes(RandomLanes a, RandomLanes b) {
  return (RandomLanes)_mm512_maskz_unpackhi_epi64(0xFF, (__m512i)a, (__m512i)b);
}
// Lane 2i holds block i and lane 2i + 1 block 4 + i, so that the even lanes are the first four blocks.
constexpr RandomLanes kBlockOfLane = {0, 4, 1, 5, 2, 6, 3, 7};
#else
inline RandomLanes even_lanes(RandomLanes a, RandomLanes b) {
  return (RandomLanes)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b);
}
inline RandomLanes odd_lanes(RandomLanes a, RandomLanes b) {
  return (RandomLanes)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b);
}
constexpr RandomLanes kBlockOfLane = {0, 2, 1, 3};
#endif

/// words[k] = the random word of element (row, column + k) of the tensor, k < 64; `column` is a multiple
/// of 4.
[[gnu::always_inline]] inline void random_words(std::uint32_t* __restrict words, const Rounding& rounding,
                                                std::int64_t row, std::int64_t column) {
  constexpr int kBlocks = sizeof(RandomLanes) / 8;                        // Philox blocks in a vector
  constexpr int kVectors = static_cast<int>(kRandomWords) / 4 / kBlocks;  // worked on side by side
  const std::uint64_t stream = std::uint64_t{2} << 24;                    // Stream::Rounding of core/philox.h
  RandomLanes c[kVectors][4];
  for (int i = 0; i < kVectors; ++i) {
    c[i][0] = kBlockOfLane + static_cast<std::uint64_t>(column / 4 + i * kBlocks);
    c[i][1] = RandomLanes{} + static_cast<std::uint64_t>(rounding.first_row + row);
    c[i][2] = RandomLanes{} + rounding.step;
    c[i][3] = RandomLanes{} + (stream | rounding.id);
  }
  PhiloxKey key(rounding.seed);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) philox_round(c[i], key);
    key.advance();
  }
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    // Words 0 and 1 of a block in one lane, 2 and 3 in another; then four words of a block side by side.
    const RandomLanes low = (c[i][0] & 0xFFFFFFFFu) | c[i][1] << 32,
                      high = (c[i][2] & 0xFFFFFFFFu) | c[i][3] << 32;
    const RandomLanes first = even_lanes(low, high), second = odd_lanes(low, high);
    __builtin_memcpy(words + i * 4 * kBlocks, &first, sizeof(first));
    __builtin_memcpy(words + i * 4 * kBlocks + 2 * kBlocks, &second, sizeof(second));
  }
}
}  // namespace

}  // namespace compact::cpu::COMPACT_ISA
