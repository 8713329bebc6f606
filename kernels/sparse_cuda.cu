#include "kernels/sparse_cuda.h"

#include <algorithm>

#include "kernels/by_type.h"
#include "kernels/gather_cuda.h"
#include "kernels/projection_draw_cuda.h"
#include "kernels/take_change_cuda.h"

namespace compact::cuda {

namespace {

constexpr int kThreads = 256;

/// A sparse P: one element ±entry in each of `count` parts of the columns, place and sign from one word.
struct Sparse {
  ProjectionWords words;
  std::int64_t n, r;
  std::uint32_t begin[5];  // of part k of the columns; r behind the last one
  int count;

  __device__ __forceinline__ float entry() const { return count == 1 ? 1.0f : 0.5f; }
  /// Words of row i, one for each part.
  __device__ __forceinline__ uint4 row(std::int64_t i) const {
    return row_words(words, static_cast<std::uint32_t>(i), 0);
  }
  /// The column that word k of a row names.
  __device__ __forceinline__ std::uint32_t column(std::uint32_t word, int k) const {
    return begin[k] + place(word, begin[k + 1] - begin[k]);
  }
  /// The same, of a part of this size and from its begin on.
  static __device__ __forceinline__ std::uint32_t place(std::uint32_t word, std::uint32_t size) {
    return static_cast<std::uint32_t>(std::uint64_t{word >> 1} * size >> 31);
  }
};

__device__ __forceinline__ std::uint32_t word_of_part(const uint4& words, int k) {
  return k == 0 ? words.x : k == 1 ? words.y : k == 2 ? words.z : words.w;
}

Sparse sparse(const Projection& p) {
  Sparse s{words_of(p), p.n, p.r, {}, sparse_count(p)};
  for (int k = 0; k < 5; ++k) s.begin[k] = static_cast<std::uint32_t>(p.r * std::min(k, s.count) / s.count);
  return s;
}

// ---- rows of P ----------------------------------------------------------------------------------------

/// tile [rows, r], one block for each row. Floor: its bytes, written once.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(Sparse p, std::int64_t begin, T* tile, std::int64_t ld) {
  const uint4 words = p.row(begin + blockIdx.x);
  T* row = tile + std::int64_t{blockIdx.x} * ld;
  for (std::int64_t j = threadIdx.x; j < p.r; j += kThreads) {
    float value = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::uint32_t word = word_of_part(words, k);
      if (k < p.count && j == p.column(word, k)) value = (word & 1u) != 0 ? -p.entry() : p.entry();
    }
    put(row[j], value);
  }
}

// ---- lists --------------------------------------------------------------------------------------------

/// For each column the inputs that it sums, in their order: entries input · 2 + (the sign is -), padded to
/// whole fours by the input n, which is 0. columns [r] = (first four, number of fours). One block for each
/// part of the columns sorts its n (column, input) pairs: latency of at most 105 meetings of the block and of
/// a few searches.
template <typename Key>
__global__ void __launch_bounds__(1024, 1)
    lists_kernel(Sparse p, std::int64_t key_count, std::int64_t part, std::uint32_t* entries, uint2* columns,
                 Key* outside) {
  using Count = CountOf<Key>;
  constexpr int kShift = sizeof(Key) == 8 ? 32 : 15;  // of the column in a key
  COMPACT_DYNAMIC_SHARED(shared);
  const int k = static_cast<int>(blockIdx.x);
  std::uint32_t begin = 0, width = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (i == k) {
      begin = p.begin[i];
      width = p.begin[i + 1] - begin;
    }
  Key* keys = place_of_keys(shared, outside, k * key_count);
  const Count count = static_cast<Count>(key_count), n = static_cast<Count>(p.n);
  for (Count i = threadIdx.x; i < count; i += blockDim.x) {
    Key key = ~Key{0};
    if (i < n) {
      const std::uint32_t word = word_of_part(p.row(i), k);
      key = static_cast<Key>(Sparse::place(word, width)) << kShift | static_cast<Key>(i) << 1 | (word & 1u);
    }
    keys[i] = key;
  }
  __syncthreads();
  sort_keys(keys, count);
  const auto first = [&](Count column) {  // of the sorted keys, the first one of this column
    return keys_below(keys, count, static_cast<Key>(column) << kShift);
  };
  // With three entries to spare for each column before it, a list begins at a multiple of four behind all
  // that the lists before it can fill.
  const auto list = [&](Count column, Count key) { return (key + 3 * column + 3) / 4 * 4; };
  std::uint32_t* to = entries + k * part;
  for (Count at = threadIdx.x; at < n; at += blockDim.x) {
    const Key key = keys[at];
    const auto column = static_cast<Count>(key >> kShift);
    const Count of_column = first(column);
    to[list(column, of_column) + at - of_column] = static_cast<std::uint32_t>(key & ((Key{1} << kShift) - 1));
  }
  for (Count column = threadIdx.x; column < static_cast<Count>(width); column += blockDim.x) {
    const Count of_column = first(column), length = first(column + 1) - of_column, fours = (length + 3) / 4;
    const Count at = list(column, of_column);
    for (Count i = length; i < 4 * fours; ++i) to[at + i] = static_cast<std::uint32_t>(n) << 1;
    store_vector(columns + begin + column, make_uint2(static_cast<std::uint32_t>((k * part + at) / 4),
                                                      static_cast<std::uint32_t>(fours)));
  }
}

// ---- products -----------------------------------------------------------------------------------------

/// z [N, r] = x [N, n] · P: a block has some rows of x in shared memory (8 of bf16 up to n = 6143, 4 up to
/// 12287), a thread sums whole columns of z for them. Floor: the bytes of x and z; beside it 4 n reads of
/// shared memory a row, of elements whose granules meet in banks by chance (about 2.6 of 8 in one).
template <int kBytes, typename X, typename Z>
__global__ void __launch_bounds__(kThreads)
    project_kernel(Sparse p, const std::uint32_t* entries, const uint2* columns, Source<X> x, Z* z,
                   std::int64_t ldz) {
  COMPACT_DYNAMIC_SHARED(shared);
  using Rows = Gather<X, kBytes>;
  const Rows rows(shared, x, std::int64_t{blockIdx.x} * Rows::kRows);
  for (std::int64_t j = threadIdx.x; j < p.r; j += kThreads) {
    const uint2 list = load_vector<uint2>(columns + j);
    const std::uint32_t* at = entries + std::int64_t{list.x} * 4;
    float sum[Rows::kRows] = {};
    for (std::uint32_t i = 0; i < list.y; ++i) {
      const uint4 four = load_vector<uint4>(at + std::int64_t{i} * 4);
      rows.add(sum, four.x >> 1, (four.x & 1u) != 0);
      rows.add(sum, four.y >> 1, (four.y & 1u) != 0);
      rows.add(sum, four.z >> 1, (four.z & 1u) != 0);
      rows.add(sum, four.w >> 1, (four.w & 1u) != 0);
    }
#pragma unroll
    for (int k = 0; k < Rows::kRows; ++k)
      if (k < rows.rows) put(z[(rows.row + k) * ldz + j], p.entry() * sum[k]);
  }
}

/// w [m, n] = kept · w + d [m, r] · Pᵀ: a block has some rows of d in shared memory, as above, a thread makes
/// four columns of them: the places of the four once (4 Philox blocks, an eighth of that for an element), and
/// one block of random words for each four elements of a bf16 w. blockIdx.y takes its share of the columns.
/// Floor: the bytes of d and twice w.
template <int kBytes, typename D, typename W>
__global__ void __launch_bounds__(kThreads, 2)
    expand_kernel(Sparse p, Source<D> d, W* w, std::int64_t ldw, const WeightChange* change_now,
                  std::uint64_t vectors) {
  COMPACT_DYNAMIC_SHARED(shared);
  const WeightChange change = *change_now;
  if (gate_closed(change.gate)) return;
  using Rows = Gather<D, kBytes>;
  const Rows rows(shared, d, std::int64_t{blockIdx.x} * Rows::kRows);
  for (std::int64_t j = 4 * (std::int64_t{blockIdx.y} * kThreads + threadIdx.x); j < p.n;
       j += 4 * std::int64_t{gridDim.y} * kThreads) {
    float sums[4][Rows::kRows] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (j + c >= p.n) continue;
      const uint4 words = p.row(j + c);
      rows.add(sums[c], p.column(words.x, 0), (words.x & 1u) != 0);
      if (p.count == 1) continue;
      rows.add(sums[c], p.column(words.y, 1), (words.y & 1u) != 0);
      rows.add(sums[c], p.column(words.z, 2), (words.z & 1u) != 0);
      rows.add(sums[c], p.column(words.w, 3), (words.w & 1u) != 0);
    }
#pragma unroll
    for (int k = 0; k < Rows::kRows; ++k) {
      if (k >= rows.rows) continue;
      float by[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) by[c] = p.entry() * sums[c][k];
      const std::int64_t row = rows.row + k, left = p.n - j;
      take_change(w + row * ldw + j, by, vectors != 0 && left >= 4, left, change, row, j);
    }
  }
}

template <int kBytes>
std::int64_t shared_bytes(std::int64_t cols) {
  return kBytes == 0 ? 0 : (cols + 1) * kBytes;
}

}  // namespace

void sparse_rows(Queue& queue, const Projection& p, std::int64_t begin, const Tensor& tile) {
  if (tile.rows() == 0) return;
  by_type(tile.dtype, [&](auto type) {
    using T = decltype(type);
    launch(queue, {"sparse rows", static_cast<unsigned>(tile.rows()), kThreads}, rows_kernel<T>, sparse(p),
           begin, tile.as<T>(), tile.ld);
  });
}

void sparse_project(Queue& queue, const Projection& p, const Tensor& lists, const Tensor& x,
                    const Tensor& z) {
  if (x.rows() == 0) return;
  const SparseLists layout(p);
  auto* entries = lists.as<std::uint32_t>();
  auto* columns = reinterpret_cast<uint2*>(entries + layout.entries());
  const dim3 grid(static_cast<unsigned>(layout.count)),
      block(static_cast<unsigned>(sorting_threads(layout.keys)));
  if (layout.keys_outside) {
    auto* keys =
        reinterpret_cast<std::uint64_t*>(lists.i32() + layout.size(p) - 2 * layout.count * layout.keys);
    launch(queue, {"sparse lists", grid, block}, lists_kernel<std::uint64_t>, sparse(p), layout.keys,
           layout.part, entries, columns, keys);
  } else {
    launch(queue, {"sparse lists", grid, block, 4 * layout.keys}, lists_kernel<std::uint32_t>, sparse(p),
           layout.keys, layout.part, entries, columns, nullptr);
  }
  by_granule(p.n, [&](auto bytes) {
    constexpr int kBytes = decltype(bytes)::value;
    const auto run = [&](auto x_type, auto z_type) {
      using X = decltype(x_type);
      using Z = decltype(z_type);
      launch(queue,
             {"sparse project", blocks_for(x.rows(), Gather<X, kBytes>::kRows), kThreads,
              shared_bytes<kBytes>(p.n)},
             project_kernel<kBytes, X, Z>, sparse(p), entries, columns, source<X>(x), z.as<Z>(), z.ld);
    };
    if (x.dtype == DType::F32) return run(float{}, float{});
    by_type(z.dtype, [&](auto z_type) { run(Bf16{}, z_type); });
  });
}

void sparse_expand(Queue& queue, const Projection& p, const Tensor& d, float kept, const Rounding& rounding,
                   const float* gate, const Tensor& w) {
  if (w.rows() == 0) return;
  const WeightChange* change = queue.live(weight_change(kept, rounding, gate));
  by_granule(p.r, [&](auto bytes) {
    constexpr int kBytes = decltype(bytes)::value;
    by_type(d.dtype, [&](auto d_type) {
      by_type(w.dtype, [&](auto w_type) {
        using D = decltype(d_type);
        using W = decltype(w_type);
        // Few rows: their columns are shared by as many blocks as it takes to fill the card.
        const std::int64_t tall = blocks_for(w.rows(), Gather<D, kBytes>::kRows);
        const std::int64_t wide = std::min<std::int64_t>(blocks_for(p.n, 4 * kThreads),
                                                         blocks_for(4 * queue.multiprocessors(), tall));
        launch(queue,
               {"sparse expand", dim3(static_cast<unsigned>(tall), static_cast<unsigned>(wide)), kThreads,
                shared_bytes<kBytes>(p.r)},
               expand_kernel<kBytes, D, W>, sparse(p), source<D>(d), w.as<W>(), w.ld, change, has_fours(w));
      });
    });
  });
}

}  // namespace compact::cuda
