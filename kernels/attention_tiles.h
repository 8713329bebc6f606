#pragma once
#include <cstdint>

#include "kernels/simd.h"

/// The matrix product of small tiles in attention, and the packing of its operands.
namespace compact::cpu::COMPACT_ISA {

namespace {

/// The block of the result that lives in registers: rows, and vectors along a row.
inline constexpr int kBlockRows = 6;
inline constexpr int kBlockVecs = kLanes == 16 ? 4 : 2;

/// The operands of C [M, N] (+)= A [M, K] · B [K, N]. A's element (i, k) is a[i · a_row + k · a_step], so A
/// may be read transposed; B and C are row-major and hold whole vectors in each row.
struct TileProduct {
  const float* a;
  std::int64_t a_row, a_step;
  const float* b;
  std::int64_t ldb;
  float* c;
  std::int64_t ldc;
  bool add;
};

template <int Rows, int Vecs>
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
      for (int v = 0; v < Vecs; ++v) sum[r][v] = fma(x, row[v], sum[r][v]);
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
template <int Rows>
void row_product(const TileProduct& t, std::int64_t i, std::int64_t n, std::int64_t k_begin,
                 std::int64_t k_end) {
  std::int64_t j = 0;
  for (; j + kBlockVecs * kLanes <= n; j += kBlockVecs * kLanes)
    block_product<Rows, kBlockVecs>(t, i, j, k_begin, k_end);
  const std::int64_t rest = (n - j) / kLanes;
  if constexpr (kBlockVecs == 4) {
    if (rest == 3) block_product<Rows, 3>(t, i, j, k_begin, k_end);
    if (rest == 2) block_product<Rows, 2>(t, i, j, k_begin, k_end);
  }
  if (rest == 1) block_product<Rows, 1>(t, i, j, k_begin, k_end);
}

/// What part of a block of rows is wanted.
struct Extent {
  std::int64_t n, k_begin, k_end;  // columns (rounded up to vectors), and the range of the inner index
};

/// The product over `M` rows; extent(i, end) gives the part for rows [i, end).
template <typename ExtentOf>
inline void tile_product(std::int64_t M, const TileProduct& t, ExtentOf extent) {
  for (std::int64_t i = 0; i < M; i += kBlockRows) {
    const std::int64_t rows = M - i < kBlockRows ? M - i : kBlockRows;
    const Extent e = extent(i, i + rows);
    const std::int64_t n = (e.n + kLanes - 1) / kLanes * kLanes;
    switch (rows) {
      case 6:
        row_product<6>(t, i, n, e.k_begin, e.k_end);
        break;
      case 5:
        row_product<5>(t, i, n, e.k_begin, e.k_end);
        break;
      case 4:
        row_product<4>(t, i, n, e.k_begin, e.k_end);
        break;
      case 3:
        row_product<3>(t, i, n, e.k_begin, e.k_end);
        break;
      case 2:
        row_product<2>(t, i, n, e.k_begin, e.k_end);
        break;
      default:
        row_product<1>(t, i, n, e.k_begin, e.k_end);
        break;
    }
  }
}

/// to [rows, width] = from [rows, D], the columns beyond D zero.
inline void pack_rows(const float* from, std::int64_t ld, std::int64_t rows, std::int64_t D, float* to,
                      std::int64_t width) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* f = from + i * ld;
    float* t = to + i * width;
#pragma omp simd
    for (std::int64_t d = 0; d < D; ++d) t[d] = f[d];
    for (std::int64_t d = D; d < width; ++d) t[d] = 0;
  }
}

/// to [D, width] = from [rows, D] transposed, the columns beyond `rows` zero.
inline void pack_transposed(const float* from, std::int64_t ld, std::int64_t rows, std::int64_t D, float* to,
                            std::int64_t width) {
  // In blocks of 16 x 16, so that a block's cache lines stay while they are used.
  for (std::int64_t d0 = 0; d0 < D; d0 += 16) {
    const std::int64_t d_end = d0 + 16 < D ? d0 + 16 : D;
    for (std::int64_t i0 = 0; i0 < rows; i0 += 16) {
      const std::int64_t i_end = i0 + 16 < rows ? i0 + 16 : rows;
      for (std::int64_t d = d0; d < d_end; ++d)
        for (std::int64_t i = i0; i < i_end; ++i) to[d * width + i] = from[i * ld + d];
    }
    for (std::int64_t d = d0; d < d_end; ++d)
      for (std::int64_t i = rows; i < width; ++i) to[d * width + i] = 0;
  }
}

}  // namespace

}  // namespace compact::cpu::COMPACT_ISA
