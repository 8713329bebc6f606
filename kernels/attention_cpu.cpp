#include "kernels/attention_cpu.h"

#include <omp.h>

#include "kernels/attention_tiles.h"
#include "kernels/vector_math.h"

// A tile of scores holds `queries` rows and `keys` columns. Row i sees the first i + shift + 1 of its keys,
// shift being the position of the tile's first query minus that of its first key; outside that triangle
// nothing is computed but what fills a vector or a block of registers, and the softmax weight is exactly 0.
namespace compact::cpu::COMPACT_ISA {

namespace {

constexpr float kLog2e = 1.44269504f;

[[gnu::always_inline]] inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
[[gnu::always_inline]] inline std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

struct Tile {
  std::int64_t queries, keys, shift;

  /// Keys that the first `rows` queries see together.
  std::int64_t seen(std::int64_t rows) const { return larger(0, smaller(keys, rows + shift)); }
  /// The first query that sees key j.
  std::int64_t first_query(std::int64_t j) const { return smaller(queries, larger(0, j - shift)); }
};

/// The places of one thread's tiles.
struct Slices {
  float* next;
  float* take(std::int64_t floats) {
    float* p = next;
    next += floats;
    return p;
  }
};

/// scores [queries, kTile] = a [queries, D] · b [D, kTile], where they are seen.
void score_product(const Tile& tile, const float* a, std::int64_t lda, std::int64_t D, const float* b,
                   float* scores) {
  tile_product(tile.queries, {a, lda, 1, b, kTile, scores, kTile, false},
               [&](std::int64_t, std::int64_t end) {
                 return Extent{tile.seen(end), 0, D};
               });
}

/// c [queries, width] (+)= p [queries, keys] · b [keys, width].
void query_product(const Tile& tile, const float* p, const float* b, std::int64_t width, float* c, bool add) {
  tile_product(tile.queries, {p, kTile, 1, b, width, c, width, add}, [&](std::int64_t, std::int64_t end) {
    return Extent{width, 0, tile.seen(end)};
  });
}

/// c [keys, width] += pᵀ [keys, queries] · b [queries, width].
void key_product(const Tile& tile, const float* p, const float* b, std::int64_t width, float* c) {
  tile_product(tile.keys, {p, 1, kTile, b, width, c, width, true}, [&](std::int64_t begin, std::int64_t) {
    return Extent{width, tile.first_query(begin), tile.queries};
  });
}

/// Fills what a row does not see, so that whole rows can be worked on.
[[gnu::always_inline]] inline void hide(float* row, std::int64_t seen) {
  for (std::int64_t j = seen; j < kTile; ++j) row[j] = -__builtin_inff();
}

/// One row of the running softmax: scores become weights relative to the new maximum (both unscaled), the sum
/// is updated, and the row of the output that was gathered so far is brought to the new maximum.
[[gnu::always_inline]] inline void softmax_row(float* row, float factor, float& maximum, float& sum,
                                               float* out, std::int64_t width) {
  float top = maximum;
#pragma omp simd reduction(max : top)
  for (std::int64_t j = 0; j < kTile; ++j) top = row[j] > top ? row[j] : top;
  if (top > maximum) {
    const float shrink = vexp2((maximum - top) * factor);
    maximum = top;
    sum *= shrink;
#pragma omp simd
    for (std::int64_t d = 0; d < width; ++d) out[d] *= shrink;
  }
  float added = 0;
#pragma omp simd reduction(+ : added)
  for (std::int64_t j = 0; j < kTile; ++j) {
    const float p = vexp2((row[j] - top) * factor);
    row[j] = p;
    added += p;
  }
  sum += added;
}

/// A block of queries of one head against all keys they see.
void forward_block(const AttentionCall& c, std::int64_t b, std::int64_t h, std::int64_t q0, float* memory) {
  const std::int64_t D = c.D, width = padded_width(D), kv = h / (c.H / c.Hkv);
  const std::int64_t block = smaller(kQueryBlock, c.T - q0), before = c.Tkv - c.T;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(D)), factor = scale * kLog2e;
  Slices slices{memory};
  float *keys = slices.take(D * kTile), *vals = slices.take(kTile * width),
        *scores = slices.take(kTile * kTile), *out = slices.take(kQueryBlock * width),
        *maximum = slices.take(kQueryBlock), *sum = slices.take(kQueryBlock);
  const float* q = c.q + (b * c.T + q0) * c.ldq + h * D;
  for (std::int64_t i = 0; i < block * width; ++i) out[i] = 0;
  for (std::int64_t i = 0; i < block; ++i) maximum[i] = -__builtin_inff(), sum[i] = 0;

  for (std::int64_t k0 = 0; k0 < before + q0 + block; k0 += kTile) {
    const std::int64_t n = smaller(kTile, c.Tkv - k0), at = b * c.Tkv + k0;
    pack_transposed(c.k + at * c.ldk + kv * D, c.ldk, n, D, keys, kTile);
    pack_rows(c.v + at * c.ldv + kv * D, c.ldv, n, D, vals, width);
    for (std::int64_t i0 = 0; i0 < block; i0 += kTile) {
      const Tile tile{smaller(kTile, block - i0), n, before + q0 + i0 - k0};
      if (tile.seen(tile.queries) == 0) continue;
      score_product(tile, q + i0 * c.ldq, c.ldq, D, keys, scores);
      for (std::int64_t i = 0; i < tile.queries; ++i) {
        hide(scores + i * kTile, tile.seen(i + 1));
        softmax_row(scores + i * kTile, factor, maximum[i0 + i], sum[i0 + i], out + (i0 + i) * width, width);
      }
      query_product(tile, scores, vals, width, out + i0 * width, true);
    }
  }

  for (std::int64_t i = 0; i < block; ++i) {
    const float inverse = 1.0f / sum[i];
    float* to = c.out + (b * c.T + q0 + i) * c.ldo + h * D;
#pragma omp simd
    for (std::int64_t d = 0; d < D; ++d) to[d] = out[i * width + d] * inverse;
    c.lse[(b * c.H + h) * c.T + q0 + i] = maximum[i] * scale + __builtin_logf(sum[i]);
  }
}

/// scores become weights p = e^(scale · score - lse), and slopes (which hold dout · v) the gradient of the
/// unscaled scores: scale · p (slope - delta).
void weights_and_slopes(const Tile& tile, float scale, const float* lse, const float* delta, float* scores,
                        float* slopes) {
  for (std::int64_t i = 0; i < tile.queries; ++i) {
    float *s = scores + i * kTile, *ds = slopes + i * kTile;
    hide(s, tile.seen(i + 1));
    const float shift = -lse[i], mean = delta[i];
#pragma omp simd
    for (std::int64_t j = 0; j < kTile; ++j) {
      const float p = vexp2(__builtin_fmaf(s[j], scale, shift) * kLog2e);
      s[j] = p;
      // Where the weight is 0 the slope may be what the tile held before.
      ds[j] = p == 0.0f ? 0.0f : p * (ds[j] - mean) * scale;
    }
  }
}

/// All gradients that one key/value head takes part in: tiles of keys outside, queries of the group inside.
void backward_head(const AttentionCall& c, std::int64_t b, std::int64_t kv, float* memory) {
  const std::int64_t D = c.D, T = c.T, width = padded_width(D), group = c.H / c.Hkv;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(D));
  Slices slices{memory};
  float *keys_t = slices.take(D * kTile), *vals_t = slices.take(D * kTile),
        *keys = slices.take(kTile * width), *queries = slices.take(kTile * width),
        *dout = slices.take(kTile * width), *dk = slices.take(kTile * width),
        *dv = slices.take(kTile * width), *dq = slices.take(kTile * width),
        *scores = slices.take(kTile * kTile), *slopes = slices.take(kTile * kTile);

  for (std::int64_t k0 = 0; k0 < T; k0 += kTile) {
    const std::int64_t n = smaller(kTile, T - k0), key_row = b * T + k0;
    const float* k = c.k + key_row * c.ldk + kv * D;
    pack_transposed(k, c.ldk, n, D, keys_t, kTile);
    pack_rows(k, c.ldk, n, D, keys, width);
    pack_transposed(c.v + key_row * c.ldv + kv * D, c.ldv, n, D, vals_t, kTile);
    for (std::int64_t i = 0; i < n * width; ++i) dk[i] = 0, dv[i] = 0;

    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h)
      for (std::int64_t q0 = k0; q0 < T; q0 += kTile) {
        const Tile tile{smaller(kTile, T - q0), n, q0 - k0};
        const std::int64_t row = b * T + q0, statistics = (b * c.H + h) * T + q0;
        pack_rows(c.q + row * c.ldq + h * D, c.ldq, tile.queries, D, queries, width);
        pack_rows(c.dout + row * c.lddout + h * D, c.lddout, tile.queries, D, dout, width);
        score_product(tile, queries, width, D, keys_t, scores);
        score_product(tile, dout, width, D, vals_t, slopes);
        weights_and_slopes(tile, scale, c.lse + statistics, c.delta + statistics, scores, slopes);
        key_product(tile, scores, dout, width, dv);
        key_product(tile, slopes, queries, width, dk);
        query_product(tile, slopes, keys, width, dq, false);
        for (std::int64_t i = 0; i < tile.queries; ++i) {
          float* to = c.dq + (row + i) * c.lddq + h * D;
          const float* from = dq + i * width;
          if (k0 == 0) {
#pragma omp simd
            for (std::int64_t d = 0; d < D; ++d) to[d] = from[d];
          } else {
#pragma omp simd
            for (std::int64_t d = 0; d < D; ++d) to[d] += from[d];
          }
        }
      }

    for (std::int64_t i = 0; i < n; ++i) {
      float *to_k = c.dk + (key_row + i) * c.lddk + kv * D, *to_v = c.dv + (key_row + i) * c.lddv + kv * D;
#pragma omp simd
      for (std::int64_t d = 0; d < D; ++d) to_k[d] = dk[i * width + d], to_v[d] = dv[i * width + d];
    }
  }
}

}  // namespace

void attention_forward(const AttentionCall& c) {
  const std::int64_t blocks = (c.T + kQueryBlock - 1) / kQueryBlock, floats = attention_forward_floats(c.D);
#pragma omp parallel for collapse(3) schedule(dynamic)
  for (std::int64_t b = 0; b < c.B; ++b)
    for (std::int64_t h = 0; h < c.H; ++h)
      // Late blocks see most keys: they start first.
      for (std::int64_t i = 0; i < blocks; ++i)
        forward_block(c, b, h, (blocks - 1 - i) * kQueryBlock, c.tiles + omp_get_thread_num() * floats);
}

void attention_backward(const AttentionCall& c) {
  const std::int64_t floats = attention_backward_floats(c.D);
  // delta = dout · out of each query and head, the mean of its slopes.
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < c.B * c.T; ++row)
    for (std::int64_t h = 0; h < c.H; ++h) {
      const float *o = c.out + row * c.ldo + h * c.D, *d = c.dout + row * c.lddout + h * c.D;
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (std::int64_t i = 0; i < c.D; ++i) dot += o[i] * d[i];
      c.delta[(row / c.T * c.H + h) * c.T + row % c.T] = dot;
    }
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (std::int64_t b = 0; b < c.B; ++b)
    for (std::int64_t kv = 0; kv < c.Hkv; ++kv)
      backward_head(c, b, kv, c.tiles + omp_get_thread_num() * floats);
}

}  // namespace compact::cpu::COMPACT_ISA
