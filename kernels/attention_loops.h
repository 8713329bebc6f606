#pragma once
#include <omp.h>

#include "kernels/attention_cpu.h"
#include "kernels/attention_rows.h"
#include "kernels/attention_tiles.h"

/// Attention over tiles. `Kind` says what the operands of the products are made of (Floats, Pairs), `Element`
/// what is in memory. A tile of scores holds `queries` rows and `keys` columns. Row i sees the first i +
/// shift
/// + 1 of its keys, shift being the position of the tile's first query minus that of its first key; outside
/// that triangle nothing is computed but what fills a vector or a block of registers, and the softmax weight
/// is exactly 0.
namespace compact::cpu::COMPACT_ISA {

namespace {

[[gnu::always_inline]] inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
[[gnu::always_inline]] inline std::int64_t most(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

struct Tile {
  std::int64_t queries, keys, shift;

  /// Keys that the first `rows` queries see together.
  std::int64_t seen(std::int64_t rows) const { return most(0, least(keys, rows + shift)); }
  /// The first query that sees key j.
  std::int64_t first_query(std::int64_t j) const { return least(queries, most(0, j - shift)); }
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

/// scores [queries, kTile] = a [queries, D] · b [D, kTile], where they are seen. A row of a is `units` long.
template <typename Kind>
void score_product(const Tile& tile, const float* a, std::int64_t units, std::int64_t D, const float* b,
                   float* scores) {
  tile_product<Kind>(tile.queries, {a, units, 1, b, kTile, scores, kTile, false},
                     [&](std::int64_t, std::int64_t end) {
                       return Extent{tile.seen(end), 0, D};
                     });
}

/// c [queries, width] (+)= p [queries, keys] · b [keys, width].
template <typename Kind>
void query_product(const Tile& tile, const Left& p, const float* b, std::int64_t width, float* c, bool add) {
  tile_product<Kind>(tile.queries, {p.units, p.row, p.step, b, width, c, width, add},
                     [&](std::int64_t, std::int64_t end) {
                       return Extent{width, 0, tile.seen(end)};
                     });
}

/// c [keys, width] += pᵀ [keys, queries] · b [queries, width].
template <typename Kind>
void key_product(const Tile& tile, const Left& p, const float* b, std::int64_t width, float* c) {
  tile_product<Kind>(tile.keys, {p.units, p.row, p.step, b, width, c, width, true},
                     [&](std::int64_t begin, std::int64_t) {
                       return Extent{width, tile.first_query(begin), tile.queries};
                     });
}

/// One task of forward: the queries from q0 on, of one head.
struct Block {
  std::int64_t b, h, q0;
};

/// A block of queries against all keys they see. `next` is what this thread will probably do then.
template <typename Kind, typename Element>
void forward_block(const AttentionCall<Element>& c, const Block& now, const Block& next, float* memory) {
  const std::int64_t b = now.b, h = now.h, q0 = now.q0, D = c.D, width = padded_width(D),
                     units = width / Kind::kDepth, group = c.H / c.Hkv, kv = h / group;
  const std::int64_t block = least(kQueryBlock, c.T - q0), before = c.Tkv - c.T,
                     keys_end = before + q0 + block;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(D)), factor = scale * kLog2e;
  Slices slices{memory};
  float *rows = slices.take(kTile * units), *keys_t = slices.take(kTile * units),
        *vals = slices.take(kTile * units), *scores = slices.take(kTile * kTile),
        *queries = slices.take(kQueryBlock * units), *out = slices.take(kQueryBlock * width),
        *reference = slices.take(kQueryBlock), *sums = slices.take(kQueryBlock * 16);
  float* weights = Kind::kDepth == 1 ? nullptr : slices.take(kTile * kTile / Kind::kDepth);
  const Element* q = c.q + (b * c.T + q0) * c.ldq + h * D;
  // (Inlined by force: GCC takes a function that only prefetches for one without effect, and drops its
  // calls.)
  const auto prefetch_query = [&](const Block& of, std::int64_t i) __attribute__((always_inline)) {
    prefetch_row(c.q + (of.b * c.T + of.q0 + i) * c.ldq + of.h * D, D);
  };
  const auto prefetch_key = [&](const Block& of, std::int64_t j) __attribute__((always_inline)) {
    prefetch_row(c.k + (of.b * c.Tkv + j) * c.ldk + of.h / group * D, D);
    prefetch_row(c.v + (of.b * c.Tkv + j) * c.ldv + of.h / group * D, D);
  };
  for (std::int64_t i = 0; i < block * width; ++i) out[i] = 0;
  for (std::int64_t i = 0; i < block; ++i) reference[i] = -__builtin_inff();
  for (std::int64_t i = 0; i < block * 16; ++i) sums[i] = 0;

  for (std::int64_t k0 = 0; k0 < keys_end; k0 += kTile) {
    const std::int64_t n = least(kTile, c.Tkv - k0), at = b * c.Tkv + k0;
    Kind::pack_rows(c.k + at * c.ldk + kv * D, c.ldk, n, D, rows, width);
    transpose(rows, units, keys_t);
    Kind::pack(c.v + at * c.ldv + kv * D, c.ldv, n, D, rows, vals, width);
    for (std::int64_t i0 = 0; i0 < block; i0 += kTile) {
      const Tile tile{least(kTile, block - i0), n, before + q0 + i0 - k0};
      if (k0 == 0) {
        // All queries see the first key, so this is where they come by first.
        Kind::pack_rows(q + i0 * c.ldq, c.ldq, tile.queries, D, queries + i0 * units, width);
      }
      if (tile.seen(tile.queries) == 0) continue;
      score_product<Kind>(tile, queries + i0 * units, units, D, keys_t, scores);
      for (std::int64_t i = 0; i < tile.queries; ++i) {
        // What the next tiles will read.
        const bool last_queries = i0 + kTile >= block;
        if (last_queries && k0 + kTile < keys_end) {
          prefetch_key(now, k0 + kTile + i);
        } else if (last_queries) {
          prefetch_key(next, i);
          prefetch_query(next, i);
        } else if (k0 == 0) {
          prefetch_query(now, i0 + kTile + i);
        }
        const std::int64_t seen = tile.seen(i + 1), at_row = i0 + i;
        const RunningRow running{reference + at_row, sums + at_row * 16, out + at_row * width, width};
        if (seen == kTile)
          softmax_row<true>(scores + i * kTile, seen, factor, running);
        else
          softmax_row<false>(scores + i * kTile, seen, factor, running);
      }
      query_product<Kind>(tile, Kind::over_keys(scores, tile.queries, weights), vals, width, out + i0 * width,
                          true);
    }
  }

  for (std::int64_t i = 0; i < block; ++i) {
    const float sum = sum_of_lanes(load(sums + i * 16));
    put_row(out + i * width, 1.0f / sum, D, c.out + (b * c.T + q0 + i) * c.ldo + h * D);
    c.lse[(b * c.H + h) * c.T + q0 + i] = reference[i] * scale + __builtin_logf(sum);
  }
}

/// dq of a tile of queries is a sum over blocks of keys. What earlier blocks gave lies in dq itself, or,
/// where that has too few bits, in `sums` [rows, width].
template <typename Element>
void add_to_dq(const float* tile, std::int64_t rows, std::int64_t width, std::int64_t D, bool first,
               bool last, float* sums, Element* dq, std::int64_t ld) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* from = tile + i * width;
    float* sum = sums + i * width;
    Element* to = dq + i * ld;
    if constexpr (sizeof(Element) == sizeof(float)) {
#pragma omp simd
      for (std::int64_t d = 0; d < D; ++d) to[d] = first ? from[d] : to[d] + from[d];
    } else if (first && last) {
      put_row(from, 1.0f, D, to);
    } else {
#pragma omp simd
      for (std::int64_t d = 0; d < D; ++d) sum[d] = first ? from[d] : sum[d] + from[d];
      if (last) put_row(sum, 1.0f, D, to);
    }
  }
}

/// One task of backward: all gradients that one key/value head takes part in.
struct KeyHead {
  std::int64_t b, kv;
};

/// Blocks of keys outside, queries of the group's heads inside. `after` is what this thread will probably do
/// then.
template <typename Kind, typename Element>
void backward_head(const AttentionCall<Element>& c, const KeyHead& now, const KeyHead& after, float* memory) {
  const std::int64_t b = now.b, kv = now.kv, D = c.D, T = c.T, width = padded_width(D),
                     units = width / Kind::kDepth, group = c.H / c.Hkv;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(D));
  Slices slices{memory};
  float *keys_t = slices.take(kKeyBlock * units), *vals_t = slices.take(kKeyBlock * units),
        *keys = slices.take(kKeyBlock * units), *dk = slices.take(kKeyBlock * width),
        *dv = slices.take(kKeyBlock * width), *dq = slices.take(kTile * width),
        *rows = slices.take(kTile * units), *queries = slices.take(kTile * units),
        *dout = slices.take(kTile * units), *scores = slices.take(kTile * kTile),
        *slopes = slices.take(kTile * kTile), *lse = slices.take(kTile), *delta = slices.take(kTile);
  float *dout_rows = nullptr, *weights = nullptr, *slopes_k = nullptr, *slopes_q = nullptr;
  if (Kind::kDepth > 1) {
    dout_rows = slices.take(kTile * units), weights = slices.take(kTile * kTile / Kind::kDepth);
    slopes_k = slices.take(kTile * kTile / Kind::kDepth),
    slopes_q = slices.take(kTile * kTile / Kind::kDepth);
  }
  // Row t of query head h and its key head, as it will be read.
  const auto prefetch = [&](std::int64_t sequence, std::int64_t h, std::int64_t t)
      __attribute__((always_inline)) {
    const std::int64_t row = sequence * T + t, head = h / group;
    prefetch_row(c.q + row * c.ldq + h * D, D);
    prefetch_row(c.dout + row * c.lddout + h * D, D);
    prefetch_row(c.out + row * c.ldo + h * D, D);
    prefetch_row(c.k + row * c.ldk + head * D, D);
    prefetch_row(c.v + row * c.ldv + head * D, D);
  };
  float* dq_sums = slices.next;  // [group · T, width], where it is needed

  for (std::int64_t block = 0; block < T; block += kKeyBlock) {
    const std::int64_t block_end = least(T, block + kKeyBlock);
    for (std::int64_t i = 0; i < (block_end - block) * width; ++i) dk[i] = 0, dv[i] = 0;

    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h)
      for (std::int64_t q0 = block; q0 < T; q0 += kTile) {
        const std::int64_t n = least(kTile, T - q0), row = b * T + q0;
        if (h == kv * group && q0 < block_end) {
          // The tile of keys at the diagonal, which comes by for the first time here.
          const std::int64_t at = (q0 - block) * units;
          Kind::pack_rows(c.v + row * c.ldv + kv * D, c.ldv, n, D, rows, width);
          transpose(rows, units, vals_t + at);
          transpose(Kind::pack(c.k + row * c.ldk + kv * D, c.ldk, n, D, rows, keys + at, width), units,
                    keys_t + at);
        }
        const Element *dout_from = c.dout + row * c.lddout + h * D, *out_from = c.out + row * c.ldo + h * D;
        const float* q = Kind::pack(c.q + row * c.ldq + h * D, c.ldq, n, D, rows, queries, width);
        const float* d = Kind::pack(dout_from, c.lddout, n, D, dout_rows, dout, width);
        for (std::int64_t i = 0; i < n; ++i) {
          // The mean of the slopes of a query.
          delta[i] = row_dot(dout_from + i * c.lddout, out_from + i * c.ldo, D);
          lse[i] = c.lse[(b * c.H + h) * T + q0 + i];
        }
        for (std::int64_t k0 = block; k0 < least(block_end, q0 + kTile); k0 += kTile) {
          const Tile tile{n, least(kTile, T - k0), q0 - k0};
          const std::int64_t at = (k0 - block) * units, at_gradient = (k0 - block) * width;
          score_product<Kind>(tile, q, units, D, keys_t + at, scores);
          score_product<Kind>(tile, d, units, D, vals_t + at, slopes);
          for (std::int64_t i = 0; i < n; ++i) {
            if (k0 == block && q0 + kTile < T)
              prefetch(b, h, least(q0 + kTile + i, T - 1));
            else if (k0 == block)
              prefetch(after.b, after.kv * group, i);
            const std::int64_t seen = tile.seen(i + 1);
            if (seen == kTile)
              slope_row<true>(scores + i * kTile, slopes + i * kTile, seen, scale, lse[i], delta[i]);
            else
              slope_row<false>(scores + i * kTile, slopes + i * kTile, seen, scale, lse[i], delta[i]);
          }
          key_product<Kind>(tile, Kind::over_queries(scores, n, weights), dout, width, dv + at_gradient);
          key_product<Kind>(tile, Kind::over_queries(slopes, n, slopes_q), queries, width, dk + at_gradient);
          query_product<Kind>(tile, Kind::over_keys(slopes, n, slopes_k), keys + at, width, dq, k0 > block);
        }
        add_to_dq(dq, n, width, D, block == 0, q0 < block_end, dq_sums + ((h - kv * group) * T + q0) * width,
                  c.dq + row * c.lddq + h * D, c.lddq);
      }

    for (std::int64_t j = 0; j < block_end - block; ++j) {
      const std::int64_t row = b * T + block + j;
      put_row(dk + j * width, 1.0f, D, c.dk + row * c.lddk + kv * D);
      put_row(dv + j * width, 1.0f, D, c.dv + row * c.lddv + kv * D);
    }
  }
}

template <typename Kind, typename Element>
void forward_all(const AttentionCall<Element>& c) {
  const std::int64_t blocks = (c.T + kQueryBlock - 1) / kQueryBlock, tasks = c.B * c.H * blocks;
  // Late blocks see most keys: they start first.
  const auto block = [&](std::int64_t task) {
    return Block{task / (c.H * blocks), task / blocks % c.H, (blocks - 1 - task % blocks) * kQueryBlock};
  };
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t task = 0; task < tasks; ++task)
    forward_block<Kind>(c, block(task), block(least(task + omp_get_num_threads(), tasks - 1)),
                        c.tiles + omp_get_thread_num() * c.thread_floats);
}

template <typename Kind, typename Element>
void backward_all(const AttentionCall<Element>& c) {
  const std::int64_t tasks = c.B * c.Hkv;
  const auto head = [&](std::int64_t task) { return KeyHead{task / c.Hkv, task % c.Hkv}; };
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t task = 0; task < tasks; ++task)
    backward_head<Kind>(c, head(task), head(least(task + omp_get_num_threads(), tasks - 1)),
                        c.tiles + omp_get_thread_num() * c.thread_floats);
}

}  // namespace

}  // namespace compact::cpu::COMPACT_ISA
