// Attention with the CPU's own products of bf16 pairs. Few CPUs with AVX-512 have them, so this file alone is
// compiled for them, and called where has_bf16_products() says so.
#ifdef COMPACT_ISA_IS_avx512
#pragma GCC target("avx512bf16")

#include "kernels/attention_cpu.h"
#include "kernels/attention_loops.h"

namespace compact::cpu::avx512 {

namespace {

/// 16 units: element i of a below element i of b.
[[gnu::always_inline]] inline __m512i interleave(__m256i a, __m256i b) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(a), _mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
}
[[gnu::always_inline]] inline __m256i round_to_bf16(Vec v) {
  return __builtin_bit_cast(__m256i, _mm512_cvtneps_pbh(v));
}

/// Tiles of bf16 pairs along the inner index of a product.
struct Pairs {
  static constexpr std::int64_t kDepth = 2;

  [[gnu::always_inline]] static Vec multiply_add(Vec a, Vec b, Vec c) {
    return _mm512_dpbf16_ps(c, __builtin_bit_cast(__m512bh, a), __builtin_bit_cast(__m512bh, b));
  }

  /// to [kTile, width / 2] = from [rows, D] in pairs along D, zero beyond it.
  static void pack_rows(const Bf16* from, std::int64_t ld, std::int64_t rows, std::int64_t D, float* to,
                        std::int64_t width) {
    for (std::int64_t i = 0; i < kTile; ++i)
      for (std::int64_t d = 0; d < width; d += 16) {
        const std::int64_t left = i < rows ? D - d : 0;
        const __mmask16 there = static_cast<__mmask16>(left >= 16 ? 0xffff : (1 << left) - 1);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (i * width + d) / 2),
                            _mm256_maskz_loadu_epi16(there, from + i * ld + d));
      }
  }

  /// left as by pack_rows (and returned), right [kTile / 2, width] in pairs along the rows.
  static const float* pack(const Bf16* from, std::int64_t ld, std::int64_t rows, std::int64_t D, float* left,
                           float* right, std::int64_t width) {
    pack_rows(from, ld, rows, D, left, width);
    for (std::int64_t i = 0; i < kTile; i += 2)
      for (std::int64_t d = 0; d < width; d += 16) {
        const auto* at = reinterpret_cast<const __m256i*>(left + (i * width + d) / 2);
        const auto* next = reinterpret_cast<const __m256i*>(left + ((i + 1) * width + d) / 2);
        _mm512_storeu_si512(right + i / 2 * width + d,
                            interleave(_mm256_loadu_si256(at), _mm256_loadu_si256(next)));
      }
    return left;
  }

  /// scores [queries, kTile] rounded, in pairs along keys: spare [queries, kTile / 2].
  static Left over_keys(const float* scores, std::int64_t queries, float* spare) {
    for (std::int64_t at = 0; at < queries * kTile; at += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(spare + at / 2), round_to_bf16(load(scores + at)));
    return {spare, kTile / 2, 1};
  }
  /// scores [queries, kTile] rounded, in pairs along queries: spare [queries / 2 rounded up, kTile].
  static Left over_queries(const float* scores, std::int64_t queries, float* spare) {
    for (std::int64_t i = 0; i < queries; i += 2)
      for (std::int64_t j = 0; j < kTile; j += 16) {
        const float* at = scores + i * kTile + j;
        const Vec next = i + 1 < queries ? load(at + kTile) : Vec{};
        _mm512_storeu_si512(spare + i / 2 * kTile + j,
                            interleave(round_to_bf16(load(at)), round_to_bf16(next)));
      }
    return {spare, 1, kTile};
  }
};

// What pairs save at the smallest width, 16, pays for their second layouts (attention_cpu.h).
static_assert((3 * kTile + kQueryBlock) * 16 / 2 >= kTile * kTile / 2);
static_assert((3 * kKeyBlock + 2 * kTile) * 16 / 2 >= 3 * kTile * kTile / 2);

}  // namespace

void attention_forward_bf16(const AttentionCall<Bf16>& c) { forward_all<Pairs>(c); }
void attention_backward_bf16(const AttentionCall<Bf16>& c) { backward_all<Pairs>(c); }

}  // namespace compact::cpu::avx512
#endif
