#pragma once
#include <immintrin.h>

#include <cstdint>

#include "compact/kernels/rounding.h"

/// Random words for rounding (compact/kernels/rounding.h), for the *_cpu.cpp files alone: internal linkage,
/// one instruction set each.
namespace compact::cpu::COMPACT_ISA {

constexpr std::int64_t kRandomWords = 64;  // words made together: neighbouring elements of one row

namespace {
// A 32-bit word in each 64-bit lane. Upper halves may hold anything: the product reads the lower ones only.
#ifdef COMPACT_ISA_IS_avx512
typedef std::uint64_t RandomLanes __attribute__((vector_size(64)));
// The masked forms, with all lanes: the plain ones warn of an uninitialised value in g++ 12.
inline RandomLanes random_product(RandomLanes a, RandomLanes b) {
  return (RandomLanes)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, (__m512i)b);
}
inline RandomLanes even_lanes(RandomLanes a, RandomLanes b) {
  return (RandomLanes)_mm512_maskz_unpacklo_epi64(0xFF, (__m512i)a, (__m512i)b);
}
inline RandomLanes odd_lanes(RandomLanes a, RandomLanes b) {
  return (RandomLanes)_mm512_maskz_unpackhi_epi64(0xFF, (__m512i)a, (__m512i)b);
}
// Lane 2i holds block i and lane 2i + 1 block 4 + i, so that the even lanes are the first four blocks.
constexpr RandomLanes kBlockOfLane = {0, 4, 1, 5, 2, 6, 3, 7};
#else
typedef std::uint64_t RandomLanes __attribute__((vector_size(32)));
inline RandomLanes random_product(RandomLanes a, RandomLanes b) {
  return (RandomLanes)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
inline RandomLanes even_lanes(RandomLanes a, RandomLanes b) {
  return (RandomLanes)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b);
}
inline RandomLanes odd_lanes(RandomLanes a, RandomLanes b) {
  return (RandomLanes)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b);
}
constexpr RandomLanes kBlockOfLane = {0, 2, 1, 3};
#endif

/// words[k] = the random word of element (row, column + k), k < 64; `column` is a multiple of 4.
[[gnu::always_inline]] inline void random_words(std::uint32_t* __restrict words, const Rounding& rounding,
                                                std::int64_t row, std::int64_t column) {
  constexpr int kBlocks = sizeof(RandomLanes) / 8;                        // Philox blocks in a vector
  constexpr int kVectors = static_cast<int>(kRandomWords) / 4 / kBlocks;  // worked on side by side
  const std::uint64_t stream = std::uint64_t{2} << 24;                    // Stream::Rounding of core/philox.h
  RandomLanes c[kVectors][4];
  for (int i = 0; i < kVectors; ++i) {
    c[i][0] = kBlockOfLane + static_cast<std::uint64_t>(column / 4 + i * kBlocks);
    c[i][1] = RandomLanes{} + static_cast<std::uint64_t>(row);
    c[i][2] = RandomLanes{} + rounding.step;
    c[i][3] = RandomLanes{} + (stream | rounding.id);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(rounding.seed),
                k1 = static_cast<std::uint32_t>(rounding.seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const RandomLanes p0 = random_product(c[i][0], RandomLanes{} + 0xD2511F53u),
                        p1 = random_product(c[i][2], RandomLanes{} + 0xCD9E8D57u);
      c[i][0] = (p1 >> 32) ^ c[i][1] ^ (RandomLanes{} + k0);
      c[i][1] = p1;
      c[i][2] = (p0 >> 32) ^ c[i][3] ^ (RandomLanes{} + k1);
      c[i][3] = p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
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
