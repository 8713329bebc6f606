#include "kernels/hadamard_cuda.h"

#include <algorithm>
#include <cmath>

#include "kernels/by_type.h"
#include "kernels/hadamard_passes_cuda.h"
#include "kernels/projection_draw_cuda.h"
#include "kernels/take_change_cuda.h"

namespace compact::cuda {

namespace {

constexpr int kRowsThreads = 256;

/// A drawn P: P (i, j) = entry · sign(i) · (-1)^popcount(i & sample(j)).
struct Drawn {
  const std::uint32_t* signs;  // bit i % 32 of word i / 32: the sign of input i is -
  const std::int32_t* sample;  // [r]
  std::int64_t n, r;
  float entry;
  int points;  // log2
};
Drawn drawn_view(const Projection& p, const Tensor& drawn) {
  const float exact = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.r)));
  const float entry = p.dtype == DType::BF16 ? to_float(nearest_bf16(exact)) : exact;
  return {drawn.as<std::uint32_t>(), drawn.i32() + hadamard_sign_words(p), p.n, p.r, entry,
          hadamard_points(p)};
}

// ---- drawing ------------------------------------------------------------------------------------------

/// Where the swaps of the Fisher-Yates shuffle went, as the sorted pairs (place j_k, step k) of the steps
/// swap(order[k], order[j_k]), j_k >= k.
template <typename Key>
struct Swaps {
  static constexpr int kShift = 4 * sizeof(Key);
  const Key* keys;  // [count]
  CountOf<Key> count;

  /// The last step before `step` that put something into `place`; -1 where there is none.
  __device__ CountOf<Key> last(CountOf<Key> place, CountOf<Key> step) const {
    const auto below = keys_below(keys, count, static_cast<Key>(place) << kShift | static_cast<Key>(step));
    if (below == 0) return -1;
    const Key key = keys[below - 1];
    constexpr Key kStep = (Key{1} << kShift) - 1;
    return key >> kShift == static_cast<Key>(place) ? static_cast<CountOf<Key>>(key & kStep) : -1;
  }
};

/// Signs from the words of row 0; sample [r] from those of row 1. The shuffle of the host is sequential; the
/// same places come out of the steps by themselves: before step k place j_k holds what the last step t < k
/// with j_t = j_k moved there, which is what place t held before step t, and so on until a place that no
/// step has touched. One block: latency of about 80 meetings of the block and of a few searches.
template <typename Key>
__global__ void __launch_bounds__(1024, 1)
    draw_kernel(ProjectionWords p, std::uint32_t* signs, std::int64_t sign_words, std::int32_t* sample,
                std::int64_t r, std::int64_t s, std::int64_t key_count, Key* outside) {
  using Count = CountOf<Key>;
  COMPACT_DYNAMIC_SHARED(shared);
  Key* keys = place_of_keys(shared, outside);
  const Count count = static_cast<Count>(key_count), drawn = static_cast<Count>(r);
  for (std::int64_t i = threadIdx.x; i < sign_words / 4; i += blockDim.x)
    store_vector(signs + 4 * i, row_words(p, 0, static_cast<std::uint32_t>(i)));
  for (Count i = threadIdx.x; i < (count + 3) / 4; i += blockDim.x) {
    const uint4 words = row_words(p, 1, static_cast<std::uint32_t>(i));
    const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const Count k = 4 * i + c;
      if (k >= count) continue;
      const auto left = static_cast<std::uint64_t>(s - k);
      const Key place = static_cast<Key>(k) + static_cast<Key>(word[c] * left >> 32);
      keys[k] = k < drawn ? place << Swaps<Key>::kShift | static_cast<Key>(k) : ~Key{0};
    }
  }
  __syncthreads();
  sort_keys(keys, count);
  const Swaps<Key> swaps{keys, count};
  for (Count at = threadIdx.x; at < drawn; at += blockDim.x) {
    const Key key = keys[at];
    const auto step = static_cast<Count>(key & ((Key{1} << Swaps<Key>::kShift) - 1));
    auto place = static_cast<Count>(key >> Swaps<Key>::kShift);
    for (Count from = swaps.last(place, step); from >= 0; from = swaps.last(from, from)) place = from;
    sample[step] = static_cast<std::int32_t>(place);
  }
}

// ---- rows of P ----------------------------------------------------------------------------------------

/// tile [rows, r], four elements a thread. Floor: its bytes, written once.
template <typename T>
__global__ void __launch_bounds__(kRowsThreads)
    rows_kernel(Drawn p, std::int64_t begin, T* tile, std::int64_t ld, std::int64_t rows, unsigned vectors) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kRowsThreads + threadIdx.x, fours = (p.r + 3) / 4;
  if (at >= rows * fours) return;
  const std::int64_t row = at / fours, j = at % fours * 4, left = p.r - j;
  const auto i = static_cast<std::uint32_t>(begin + row);
  const std::uint32_t sign = p.signs[i / 32] >> (i % 32);
  FourOf<T> four{};
#pragma unroll
  for (int c = 0; c < 4; ++c)
    if (c < left) {
      std::uint32_t parity = i & static_cast<std::uint32_t>(p.sample[j + c]);
      parity ^= parity >> 16;
      parity ^= parity >> 8;
      parity ^= parity >> 4;
      parity ^= parity >> 2;
      parity ^= parity >> 1;
      put(four.x[c], signed_by(p.entry, parity ^ sign));
    }
  store_four(tile + row * ld + j, four, vectors != 0 && left >= 4, left);
}

// ---- transforms ---------------------------------------------------------------------------------------

// A row of 2^points floats in shared memory for each group of threads_of threads. Floor of both: the bytes of
// x and z, or of d and twice w. Beside it go (writes and reads of shared memory, each 4 · 2^points bytes a
// row): one pair for each pass but the first, and one write; the sample's places meet in banks by chance
// (about 3.5 of 32 in one bank).

/// z [N, r] = x [N, n] · P.
template <bool kLong, typename X, typename Z>
__global__ void __launch_bounds__(kTransformThreads<kLong>, kLong ? 3 : 4)
    project_kernel(Drawn p, const X* x, std::int64_t ldx, Z* z, std::int64_t ldz, std::int64_t N,
                   unsigned x_vectors, unsigned z_vectors) {
  COMPACT_DYNAMIC_SHARED(shared);
  const Place at(p.points);
  float* tile = reinterpret_cast<float*>(shared) + at.tile;
  const std::int64_t row = std::int64_t{blockIdx.x} * (blockDim.x >> at.threads_log) + at.row;
  const bool there = row < N;
  if (there)
    outer_pass<kLong>(p.points, at, [&](auto outer, int group) {
      constexpr int kVectors = 1 << decltype(outer)::value;
      float v[8 * kVectors];
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        const std::int64_t j = 8 * (group + (k << groups_log(p.points)));
        load_eight(v + 8 * k, x + row * ldx + j, x_vectors != 0, p.n - j);
        const std::uint32_t signs = p.signs[j / 32] >> (j % 32);
#pragma unroll
        for (int e = 0; e < 8; ++e) v[8 * k + e] = signed_by(v[8 * k + e], signs >> e);
      }
      butterflies<3 + decltype(outer)::value>(v);
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        store_outer(tile, 8 * (group + (k << groups_log(p.points))), v + 8 * k);
    });
  __syncthreads();
  inner_passes<kLong>(tile, p.points, at, there);
  if (!there) return;
  for (std::int64_t j = 4 * at.thread; j < p.r; j += 4 << at.threads_log) {
    FourOf<Z> four{};
    const std::int64_t left = p.r - j;
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (c < left) put(four.x[c], p.entry * tile[bank_of(p.sample[j + c])]);
    store_four(z + row * ldz + j, four, z_vectors != 0 && left >= 4, left);
  }
}

/// w [m, n] = kept · w + d [m, r] · Pᵀ.
template <bool kLong, typename D, typename W>
__global__ void __launch_bounds__(kTransformThreads<kLong>, kLong ? 3 : 4)
    expand_kernel(Drawn p, const D* d, std::int64_t ldd, W* w, std::int64_t ldw, std::int64_t m,
                  const WeightChange* change_now, unsigned d_vectors, unsigned w_vectors) {
  COMPACT_DYNAMIC_SHARED(shared);
  const WeightChange change = *change_now;
  if (gate_closed(change.gate)) return;
  const Place at(p.points);
  float* tile = reinterpret_cast<float*>(shared) + at.tile;
  const std::int64_t row = std::int64_t{blockIdx.x} * (blockDim.x >> at.threads_log) + at.row;
  const bool there = row < m;
  if (there)
    for (int i = 4 * at.thread; i < at.points; i += 4 << at.threads_log)
      store_vector(tile + i, make_float4(0, 0, 0, 0));
  __syncthreads();
  if (there)
    for (std::int64_t j = 4 * at.thread; j < p.r; j += 4 << at.threads_log) {
      const std::int64_t left = p.r - j;
      const Four four = load_four(d + row * ldd + j, d_vectors != 0 && left >= 4, left);
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (c < left) tile[bank_of(p.sample[j + c])] = four.x[c];
    }
  __syncthreads();
  inner_passes<kLong>(tile, p.points, at, there);
  if (!there) return;
  outer_pass<kLong>(p.points, at, [&](auto outer, int group) {
    constexpr int kVectors = 1 << decltype(outer)::value;
    float v[8 * kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) load_outer(v + 8 * k, tile, 8 * (group + (k << groups_log(p.points))));
    butterflies<3 + decltype(outer)::value>(v);
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
#pragma unroll
      for (int half = 0; half < 8; half += 4) {
        const std::int64_t j = 8 * (group + (k << groups_log(p.points))) + half, left = p.n - j;
        if (left <= 0) continue;
        const std::uint32_t signs = p.signs[j / 32] >> (j % 32);
        float by[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) by[e] = p.entry * signed_by(v[8 * k + half + e], signs >> e);
        take_change(w + row * ldw + j, by, w_vectors != 0 && left >= 4, left, change, row, j);
      }
  });
}

Launch transform_launch(const char* op, const Projection& p, std::int64_t rows) {
  const int threads_log = threads_log_of(hadamard_points(p)), points = tile_points(hadamard_points(p));
  const int in_block =
      (points > 1 << kShortTransform ? kTransformThreads<true> : kTransformThreads<false>) >> threads_log;
  return {op, blocks_for(rows, in_block), static_cast<unsigned>(in_block << threads_log),
          static_cast<std::int64_t>(in_block) * points * 4};
}

template <typename F>
void by_length(const Projection& p, F&& f) {
  if (hadamard_points(p) > kShortTransform)
    f(std::true_type{});
  else
    f(std::false_type{});
}

}  // namespace

void hadamard_draw(Queue& queue, const Projection& p, const Tensor& drawn) {
  const std::int64_t words = hadamard_sign_words(p), s = std::int64_t{1} << hadamard_points(p);
  const auto count = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(p.r)));
  auto* signs = drawn.as<std::uint32_t>();
  std::int32_t* sample = drawn.i32() + words;
  const auto threads = static_cast<unsigned>(sorting_threads(count));
  if (hadamard_transforms(p)) {
    launch(queue, {"hadamard draw", 1, threads, 4 * count}, draw_kernel<std::uint32_t>, words_of(p), signs,
           words, sample, p.r, s, count, nullptr);
    return;
  }
  auto* keys = reinterpret_cast<std::uint64_t*>(sample + (p.r + 3) / 4 * 4);
  launch(queue, {"hadamard draw", 1, threads}, draw_kernel<std::uint64_t>, words_of(p), signs, words, sample,
         p.r, s, count, keys);
}

void hadamard_rows(Queue& queue, const Projection& p, const Tensor& drawn, std::int64_t begin,
                   const Tensor& tile) {
  if (tile.rows() == 0) return;
  by_type(tile.dtype, [&](auto type) {
    using T = decltype(type);
    launch(queue, {"hadamard rows", blocks_for(tile.rows() * ((p.r + 3) / 4), kRowsThreads), kRowsThreads},
           rows_kernel<T>, drawn_view(p, drawn), begin, tile.as<T>(), tile.ld, tile.rows(), has_fours(tile));
  });
}

void hadamard_project(Queue& queue, const Projection& p, const Tensor& drawn, const Tensor& x,
                      const Tensor& z) {
  if (x.rows() == 0) return;
  by_length(p, [&](auto is_long) {
    const auto run = [&](auto x_type, auto z_type) {
      using X = decltype(x_type);
      using Z = decltype(z_type);
      launch(queue, transform_launch("hadamard project", p, x.rows()),
             project_kernel<decltype(is_long)::value, X, Z>, drawn_view(p, drawn), x.as<X>(), x.ld, z.as<Z>(),
             z.ld, x.rows(), has_eights(x), has_fours(z));
    };
    if (x.dtype == DType::F32) return run(float{}, float{});
    by_type(z.dtype, [&](auto z_type) { run(Bf16{}, z_type); });
  });
}

void hadamard_expand(Queue& queue, const Projection& p, const Tensor& drawn, const Tensor& d, float kept,
                     const Rounding& rounding, const float* gate, const Tensor& w) {
  if (w.rows() == 0) return;
  const WeightChange* change = queue.live(weight_change(kept, rounding, gate));
  by_length(p, [&](auto is_long) {
    by_type(d.dtype, [&](auto d_type) {
      by_type(w.dtype, [&](auto w_type) {
        using D = decltype(d_type);
        using W = decltype(w_type);
        launch(queue, transform_launch("hadamard expand", p, w.rows()),
               expand_kernel<decltype(is_long)::value, D, W>, drawn_view(p, drawn), d.as<D>(), d.ld,
               w.as<W>(), w.ld, w.rows(), change, has_fours(d), has_fours(w));
      });
    });
  });
}

}  // namespace compact::cuda
