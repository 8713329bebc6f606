#pragma once
#include <cstdint>

#include "kernels/attention_cpu.h"
#include "kernels/simd.h"

/// The matrix product of small tiles in attention. An operand consists of units of 32 bits, each of which
/// holds `Kind::kDepth` neighbours along the inner index: one float, or a pair of bf16 numbers. Results are
/// floats.
namespace compact::cpu::COMPACT_ISA {

namespace {

/// The block of the result that lives in registers: rows, and vectors along a row.
inline constexpr int kBlockRows = 6;
inline constexpr int kBlockVecs = kLanes == 16 ? 4 : 2;

/// The operands of C [M, N] (+)= A [M, K] · B [K, N], K in units. A's unit (i, k) is a[i · a_row + k ·
/// a_step], so A may be read transposed; B and C are row-major and hold whole vectors in each row.
struct TileProduct {
  const float* a;
  std::int64_t a_row, a_step;
  const float* b;
  std::int64_t ldb;
  float* c;
  std::int64_t ldc;
  bool add;
};

template <typename Kind, int Rows, int Vecs>
[[gnu::always_inline]] inline void block_product(const TileProduct& t, std::int64_t i, std::int64_t j,
                                                 std::int64_t k_begin, std::int64_t k_end) {
  const float* a = t.a + i * t.a_row + k_begin * t.a_step;
  const float* b = t.b + k_begin * t.ldb + j;
  float* c = t.c + i * t.ldc + j;
  const std::int64_t a_row = t.a_row, a_step = t.a_step, ldb = t.ldb, ldc = t.ldc;
  Vec sum[Rows][Vecs];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < Vecs; ++v) sum[r][v] = t.add ? load(c + r * ldc + v * kLanes) : Vec{};
  for (std::int64_t k = k_begin; k < k_end; ++k) {
    Vec row[Vecs];
#pragma GCC unroll 8
    for (int v = 0; v < Vecs; ++v) row[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Vec x = broadcast(a[r * a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < Vecs; ++v) sum[r][v] = Kind::multiply_add(x, row[v], sum[r][v]);
    }
    a += a_step;
    b += ldb;
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < Vecs; ++v) store(c + r * ldc + v * kLanes, sum[r][v]);
}

/// Rows [i, i + Rows) of the product, columns [0, n), n a multiple of kLanes.
template <typename Kind, int Rows>
void row_product(const TileProduct& t, std::int64_t i, std::int64_t n, std::int64_t k_begin,
                 std::int64_t k_end) {
  std::int64_t j = 0;
  for (; j + kBlockVecs * kLanes <= n; j += kBlockVecs * kLanes)
    block_product<Kind, Rows, kBlockVecs>(t, i, j, k_begin, k_end);
  const std::int64_t rest = (n - j) / kLanes;
  if constexpr (kBlockVecs == 4) {
    if (rest == 3) block_product<Kind, Rows, 3>(t, i, j, k_begin, k_end);
    if (rest == 2) block_product<Kind, Rows, 2>(t, i, j, k_begin, k_end);
  }
  if (rest == 1) block_product<Kind, Rows, 1>(t, i, j, k_begin, k_end);
}

/// What part of a block of rows is wanted.
struct Extent {
  std::int64_t n, k_begin, k_end;  // columns (rounded up to vectors), and the range of the inner index
};

/// The product over `M` rows; extent(i, end) gives the part for rows [i, end), its inner range in elements.
template <typename Kind, typename ExtentOf>
inline void tile_product(std::int64_t M, const TileProduct& t, ExtentOf extent) {
  for (std::int64_t i = 0; i < M; i += kBlockRows) {
    const std::int64_t rows = M - i < kBlockRows ? M - i : kBlockRows;
    const Extent e = extent(i, i + rows);
    const std::int64_t n = (e.n + kLanes - 1) / kLanes * kLanes;
    const std::int64_t k_begin = e.k_begin / Kind::kDepth,
                       k_end = (e.k_end + Kind::kDepth - 1) / Kind::kDepth;
    switch (rows) {
      case 6:
        row_product<Kind, 6>(t, i, n, k_begin, k_end);
        break;
      case 5:
        row_product<Kind, 5>(t, i, n, k_begin, k_end);
        break;
      case 4:
        row_product<Kind, 4>(t, i, n, k_begin, k_end);
        break;
      case 3:
        row_product<Kind, 3>(t, i, n, k_begin, k_end);
        break;
      case 2:
        row_product<Kind, 2>(t, i, n, k_begin, k_end);
        break;
      default:
        row_product<Kind, 1>(t, i, n, k_begin, k_end);
        break;
    }
  }
}

/// The left operand of a product: unit (i, k) is units[i · row + k · step].
struct Left {
  const float* units;
  std::int64_t row, step;
};

/// Tiles of floats. Packed rows [kTile, width] serve as either operand.
struct Floats {
  static constexpr std::int64_t kDepth = 1;

  [[gnu::always_inline]] static Vec multiply_add(Vec a, Vec b, Vec c) { return fma(a, b, c); }

  /// to [kTile, width] = from [rows, D], zero beyond it.
  template <typename Element>
  static void pack_rows(const Element* from, std::int64_t ld, std::int64_t rows, std::int64_t D, float* to,
                        std::int64_t width) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const Element* f = from + i * ld;
      float* t = to + i * width;
      std::int64_t d = 0;
      for (; d + kLanes <= D; d += kLanes) store(t + d, load(f + d));
      for (; d < D; ++d) t[d] = to_float(f[d]);
      for (; d < width; ++d) t[d] = 0;
    }
    for (std::int64_t i = rows * width; i < kTile * width; ++i) to[i] = 0;
  }

  /// The same, as a left operand (which is returned) and as a right one.
  template <typename Element>
  static const float* pack(const Element* from, std::int64_t ld, std::int64_t rows, std::int64_t D,
                           float* /*left*/, float* right, std::int64_t width) {
    pack_rows(from, ld, rows, D, right, width);
    return right;
  }

  /// scores [kTile, kTile] as the left operand of a product over keys.
  static Left over_keys(const float* scores, std::int64_t /*queries*/, float* /*spare*/) {
    return {scores, kTile, 1};
  }
  /// The same transposed, for a product over queries.
  static Left over_queries(const float* scores, std::int64_t /*queries*/, float* /*spare*/) {
    return {scores, 1, kTile};
  }
};

/// to [units, kTile] = from [kTile, units] transposed, `units` a multiple of 4.
inline void transpose(const float* from, std::int64_t units, float* to) {
  for (std::int64_t u = 0; u < units; u += 4)
    for (std::int64_t i = 0; i < kTile; i += 4) {
      const float* f = from + i * units + u;
      __m128 a = _mm_loadu_ps(f), b = _mm_loadu_ps(f + units), c = _mm_loadu_ps(f + 2 * units),
             d = _mm_loadu_ps(f + 3 * units);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      float* t = to + u * kTile + i;
      _mm_storeu_ps(t, a);
      _mm_storeu_ps(t + kTile, b);
      _mm_storeu_ps(t + 2 * kTile, c);
      _mm_storeu_ps(t + 3 * kTile, d);
    }
}

}  // namespace

}  // namespace compact::cpu::COMPACT_ISA
