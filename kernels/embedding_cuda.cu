#include "kernels/by_type.h"
#include "kernels/embedding_cuda.h"
#include "kernels/launch_cuda.h"
#include "kernels/pack_cuda.h"
#include "kernels/reduce_cuda.h"

namespace compact::cuda {

namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

/// out [N, C] = rows of the table; one pack of a row by each thread. Least traffic: out written, and read as
/// much of the table.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const std::int32_t* ids, const T* table, std::int64_t ldt, T* out, std::int64_t ldo,
                   std::int64_t N, std::int64_t C, bool whole) {
  const std::int64_t packs = packs_of<T>(C), i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= N * packs) return;
  std::int64_t n, column;
  row_and_column(i, packs, n, column);
  column *= kPack<T>;
  store_pack(out + n * ldo, column, C, whole, load_pack(table + ids[n] * ldt, column, C, whole));
}

constexpr int kRankThreads = 128, kTile = 1024;

/// order [N]: the tokens sorted by id, equal ids in the order of the tokens. Each thread counts what comes
/// before its token: 2 N² operations of integers, 1.2 ms of an H200 for N = 131072, a 16th for N = 32768.
__global__ void __launch_bounds__(kRankThreads)
    order_kernel(const std::int32_t* ids, std::int32_t N, std::int32_t* order) {
  COMPACT_SHARED(std::int32_t, tile, [kTile]);
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.x) * kRankThreads,
                     own = first + static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t id = own < N ? ids[own] : 0;
  std::int32_t rank = 0;
  // kTile is a multiple of kRankThreads: all tokens of the block lie in one tile.
  for (std::int32_t begin = 0; begin < N; begin += kTile) {
    const std::int32_t count = N - begin < kTile ? N - begin : kTile;
    __syncthreads();
    for (std::int32_t j = static_cast<std::int32_t>(threadIdx.x); j < kTile; j += kRankThreads)
      tile[j] = j < count ? ids[begin + j] : INT32_MAX;  // before nothing
    __syncthreads();
    // Equal ids count in tiles before the own token, and not behind it.
    const std::int32_t limit = begin + kTile <= first ? id + 1 : id;
    for (std::int32_t j = 0; j < kTile; j += 4) {
      const int4 four = load_vector<int4>(tile + j);
      rank += (four.x < limit ? 1 : 0) + (four.y < limit ? 1 : 0) + (four.z < limit ? 1 : 0) +
              (four.w < limit ? 1 : 0);
    }
    if (begin <= first && first < begin + kTile)
      for (std::int32_t j = 0; j < own - begin && j < count; ++j) rank += tile[j] == id ? 1 : 0;
  }
  if (own < N) order[rank] = own;
}

template <typename T, typename D>
struct Backward {
  const std::int32_t *ids, *order;
  const T* dout;
  D* dtable;
  std::int64_t ldo, ldt, N, C, whole;
};

/// An F32 table takes the rows one after another, a BF16 one the sum of all.
__device__ __forceinline__ float sum_before(const float& at) { return at; }
__device__ __forceinline__ float sum_before(const Bf16&) { return 0; }
__device__ __forceinline__ void put_sum(float& at, float sum) { at = sum; }
__device__ __forceinline__ void put_sum(Bf16& at, float sum) { put(at, to_float(at) + sum); }

constexpr int kShort = 64;      // runs of fewer equal ids are taken by one warp, others by a block
constexpr int kShortPacks = 4;  // packs of a row by each lane

/// dtable += the rows of dout of each id that fewer than kShort tokens have. A warp for each place of
/// `order`; those that begin no run end. Least traffic: dout read, the named rows of dtable read and written.
template <typename T, typename D>
__global__ void __launch_bounds__(kThreads) short_runs_kernel(Backward<T, D> b) {
  const std::int64_t place = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  if (place >= b.N) return;  // the whole warp, as below
  const std::int32_t id = b.ids[b.order[place]];
  if (place > 0 && b.ids[b.order[place - 1]] == id) return;
  int same = 0;
  for (std::int64_t other = place + lane; other < place + kShort && other < b.N; other += kWarp)
    same += b.ids[b.order[other]] == id ? 1 : 0;
  const int count = warp_sum(same);
  if (count == kShort) return;
  D* to = b.dtable + id * b.ldt;
  const std::int64_t begin = std::int64_t{blockIdx.y} * (kWarp * kShortPacks * kPack<T>);
  for (int k = 0; k < kShortPacks; ++k) {
    const std::int64_t column = begin + (k * kWarp + lane) * kPack<T>;
    if (column >= b.C) return;
    float sums[kPack<T>];
    for (int i = 0; i < kPack<T>; ++i) sums[i] = column + i < b.C ? sum_before(to[column + i]) : 0;
    for (int n = 0; n < count; ++n) {
      float x[kPack<T>];
      load_pack(b.dout + b.order[place + n] * b.ldo, column, b.C, b.whole != 0).floats(x);
      for (int i = 0; i < kPack<T>; ++i) sums[i] += x[i];
    }
    for (int i = 0; i < kPack<T>; ++i)
      if (column + i < b.C) put_sum(to[column + i], sums[i]);
  }
}

constexpr int kColumns = 256;
template <typename T>
inline constexpr int kRows = 128 / static_cast<int>(sizeof(T));  // of a tile of kRows x kColumns, 32 KiB

/// The same for ids of kShort tokens and more: blockIdx.x is a place of `order` that is a multiple of kShort,
/// of which such a run has one at least; the block of its first one takes kColumns columns of the run. The
/// next tile of rows is on its way to registers while each thread adds the rows of this one in one column.
template <typename T, typename D>
__global__ void __launch_bounds__(kThreads, 3) long_runs_kernel(Backward<T, D> b) {
  COMPACT_SHARED(uint4, packed_tile, [kRows<T> * kColumns / kPack<T>]);
  COMPACT_SHARED(int, start_in, [1]);
  T* const tile = reinterpret_cast<T*>(packed_tile);
  constexpr int kRowPacks = kColumns / kPack<T>, kEach = kRows<T> * kRowPacks / kThreads;
  const std::int64_t mark = std::int64_t{blockIdx.x} * kShort;
  const std::int32_t id = b.ids[b.order[mark]];
  if (mark >= kShort && b.ids[b.order[mark - kShort]] == id) return;  // the whole block, as below
  // Of the places before the mark, how many are of the run?
  if (threadIdx.x == 0) *start_in = 0;
  __syncthreads();
  if (threadIdx.x < kShort && threadIdx.x < mark && b.ids[b.order[mark - 1 - threadIdx.x]] == id)
    atomicAdd(start_in, 1);
  __syncthreads();
  const std::int64_t begin = mark - *start_in;
  if (begin + kShort > b.N || b.ids[b.order[begin + kShort - 1]] != id) return;

  const std::int64_t column = std::int64_t{blockIdx.y} * kColumns;
  const int thread = static_cast<int>(threadIdx.x), row_in = thread / kRowPacks;
  const std::int64_t at = column + thread % kRowPacks * kPack<T>;  // the thread's packs are one below another
  // The rows of a tile that are of the run; the others come as zeros.
  const auto load = [&](std::int64_t row, Pack<T>(&packs)[kEach]) {
    for (int k = 0; k < kEach; ++k) {
      const std::int64_t place = row + row_in + k * (kThreads / kRowPacks);
      packs[k] = {{0, 0, 0, 0}};
      if (place >= b.N || at >= b.C) continue;
      const std::int64_t n = b.order[place];
      if (b.ids[n] == id) packs[k] = load_pack(b.dout + n * b.ldo, at, b.C, b.whole != 0);
    }
  };
  const auto is_of_run = [&](std::int64_t place) { return place < b.N && b.ids[b.order[place]] == id; };
  const std::int64_t own = column + threadIdx.x;
  D* to = b.dtable + id * b.ldt + own;
  float sum = own < b.C ? sum_before(*to) : 0;
  Pack<T> packs[kEach];
  load(begin, packs);
  for (std::int64_t row = begin; is_of_run(row); row += kRows<T>) {
    for (int k = 0; k < kEach; ++k) store_pack(tile, (k * kThreads + thread) * kPack<T>, 0, true, packs[k]);
    __syncthreads();
    load(row + kRows<T>, packs);
    for (int i = 0; i < kRows<T>; ++i) sum += to_float(tile[i * kColumns + thread]);
    __syncthreads();
  }
  if (own < b.C) put_sum(*to, sum);
}

}  // namespace

void embedding_forward(Queue& queue, const Tensor& ids, const Tensor& table, const Tensor& out) {
  const std::int64_t N = ids.elements(), C = out.cols();
  by_type(out.dtype, [&](auto type) {
    using T = decltype(type);
    if (N * C == 0) return;
    launch(queue, {"embedding_forward", blocks_for(N * packs_of<T>(C), kThreads), kThreads},
           forward_kernel<T>, ids.i32(), table.as<T>(), table.ld, out.as<T>(), out.ld, N, C,
           in_packs(table) && in_packs(out));
  });
}

void embedding_backward(Queue& queue, const Tensor& ids, const Tensor& dout, const Tensor& order,
                        const Tensor& dtable) {
  const std::int64_t N = ids.elements(), C = dout.cols();
  if (N * C == 0) return;
  const char* op = "embedding_backward";
  launch(queue, {op, blocks_for(N, kRankThreads), kRankThreads}, order_kernel, ids.i32(),
         static_cast<std::int32_t>(N), order.i32());
  by_type(dout.dtype, [&](auto type) {
    by_type(dtable.dtype, [&](auto table_type) {
      using T = decltype(type);
      using D = decltype(table_type);
      const Backward<T, D> b = {ids.i32(), order.i32(), dout.as<T>(),  dtable.as<D>(), dout.ld, dtable.ld,
                                N,         C,           in_packs(dout)};
      launch(queue,
             {op, dim3(blocks_for(N, kWarps), blocks_for(C, kWarp * kShortPacks * kPack<T>)), kThreads},
             short_runs_kernel<T, D>, b);
      launch(queue, {op, dim3(blocks_for(N, kShort), blocks_for(C, kColumns)), kThreads},
             long_runs_kernel<T, D>, b);
    });
  });
}

}  // namespace compact::cuda
