#include "kernels/by_type.h"
#include "kernels/expand_cuda.h"
#include "kernels/stage_cuda.h"

/// w [m, n] = kept · w + d [m, r] · Pᵀ by tensor cores. Least traffic: w read and written once, 4 m n bytes
/// (8 for a master weight, 10 with its bf16 copy), d and P a few per cent of that; 2 m n r operations. On an
/// H200 memory is the floor up to r = 410 (4.8 TB/s against 989 TFLOP/s), the tensor cores above. Each d and
/// P is read from a cache n / kCols and m / 128 times.
namespace compact::cuda {

namespace {

constexpr int kTileRows = 128, kDepth = 32;  // of a tile of w; of the inner dimension at a time
constexpr int kLength = kDepth + kPad;

/// `p` holds the rows of P for the columns of w. Eight warps, four along the rows: each has 32 x kCols / 2 of
/// the tile's sums in registers.
template <typename W, typename D, typename Source, int kCols>
__global__ __launch_bounds__(kStageThreads, 2) void expand_bf16_kernel(Weight<W> w, D d, Source p,
                                                                       const WeightChange* live) {
  constexpr int kWide = kCols / 2, kSumLength = kCols + 8;  // 8: a warp's sums go to 32 different banks
  constexpr int kOperands = 2 * (kTileRows + kCols) * kLength * 2, kSums = kTileRows / 2 * kSumLength * 4;
  COMPACT_SHARED(unsigned char, memory, [kOperands > kSums ? kOperands : kSums]);
  auto* const a_tiles = reinterpret_cast<Bf16(*)[kTileRows][kLength]>(memory);
  auto* const b_tiles = reinterpret_cast<Bf16(*)[kCols][kLength]>(memory + 2 * kTileRows * kLength * 2);
  if (gate_closed(live->gate)) return;

  const std::int64_t row_tiles = (w.rows + kTileRows - 1) / kTileRows;
  const std::int64_t row0 = blockIdx.x % row_tiles * kTileRows, column0 = blockIdx.x / row_tiles * kCols;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warp_row = warp % 4 * 32, warp_column = warp / 4 * kWide;
  float sums[2][kWide / 8][4] = {};
  // What lies outside of w is multiplied by no warp.
  const bool needed = row0 + warp_row < w.rows && column0 + warp_column < w.cols;

  Staged<kTileRows, kDepth> a;
  Staged<kCols, kDepth> b;
  a.load(d, row0, 0);
  b.load(p, column0, 0);
  a.store(d, a_tiles[0]);
  b.store(p, b_tiles[0]);
  __syncthreads();
  int now = 0;
  for (std::int64_t k = 0; k < d.cols; k += kDepth, now ^= 1) {
    const bool more = k + kDepth < d.cols;
    if (more) {
      a.load(d, row0, k + kDepth);
      b.load(p, column0, k + kDepth);
    }
    if (needed) {
#pragma unroll
      for (int step = 0; step < kDepth; step += 16) {
        std::uint32_t rows[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i)
          load_tiles_4(rows[i], &a_tiles[now][warp_row + 16 * i + lane % 16][step + lane / 16 * 8]);
#pragma unroll
        for (int j = 0; j < kWide / 16; ++j) {
          std::uint32_t columns[4];
          load_tiles_4(
              columns,
              &b_tiles[now][warp_column + 16 * j + lane / 16 * 8 + lane % 8][step + lane / 8 % 2 * 8]);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            mma_bf16(sums[i][2 * j], rows[i], {columns[0], columns[1]});
            mma_bf16(sums[i][2 * j + 1], rows[i], {columns[2], columns[3]});
          }
        }
      }
    }
    if (more) {
      a.store(d, a_tiles[now ^ 1]);
      b.store(p, b_tiles[now ^ 1]);
    }
    __syncthreads();
  }

  // The sums change owners, half of the tile at a time: each thread gets four neighbours, one block of random
  // words, and a warp a whole row of the tile of w.
  const WeightChange change = *live;
  auto* const by = reinterpret_cast<float(*)[kSumLength]>(memory);
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    if (warp % 4 / 2 == half) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < kWide / 8; ++j)
#pragma unroll
          for (int lower = 0; lower < 2; ++lower)
            store_vector(
                &by[warp % 2 * 32 + 16 * i + 8 * lower + lane / 4][warp_column + 8 * j + 2 * (lane % 4)],
                make_float2(sums[i][j][2 * lower], sums[i][j][2 * lower + 1]));
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows / 2 * (kCols / 4); i += kStageThreads) {
      const int row = i / (kCols / 4), column = i % (kCols / 4) * 4;
      const float4 v = load_vector<float4>(&by[row][column]);
      change_four(w, change, row0 + half * (kTileRows / 2) + row, column0 + column, {{v.x, v.y, v.z, v.w}});
    }
    __syncthreads();
  }
}

template <int kCols, typename W, typename D, typename Source>
void run(Queue& queue, const Weight<W>& w, const D& d, const Source& p, const WeightChange* change) {
  const std::int64_t blocks = (w.rows + kTileRows - 1) / kTileRows * ((w.cols + kCols - 1) / kCols);
  launch(queue, {"expand_add", static_cast<unsigned>(blocks), kStageThreads},
         expand_bf16_kernel<W, D, Source, kCols>, w, d, p, change);
}

template <typename W, typename D>
void expand(Queue& queue, const Projection& p, const Tensor& rows_of_p, const Tensor& d,
            const WeightChange* change, const Weight<W>& w) {
  const auto aligned = matrix<D, true>(d);
  const auto any = matrix<D, false>(d);
  if (rows_of_p.empty()) {
    if (has_eights(d)) return run<64>(queue, w, aligned, gaussian(p), change);
    return run<64>(queue, w, any, gaussian(p), change);
  }
  if (!has_eights(d) || !has_eights(rows_of_p))
    return run<64>(queue, w, any, matrix<Bf16, false>(rows_of_p), change);
  // Narrow tiles where wide ones would leave multiprocessors without work.
  const std::int64_t wide = (w.rows + kTileRows - 1) / kTileRows * ((w.cols + 127) / 128);
  if (wide < queue.multiprocessors())
    return run<64>(queue, w, aligned, matrix<Bf16, true>(rows_of_p), change);
  run<128>(queue, w, aligned, matrix<Bf16, true>(rows_of_p), change);
}

}  // namespace

void expand_bf16(Queue& queue, const Projection& p, const Tensor& rows_of_p, const Tensor& d,
                 const WeightChange* change, std::int64_t first_column, const Tensor& w,
                 const Tensor& nearest) {
  by_type(w.dtype, [&](auto type) {
    using W = decltype(type);
    const Weight<W> to = weight<W>(w, first_column, nearest);
    if (d.dtype == DType::BF16) return expand<W, Bf16>(queue, p, rows_of_p, d, change, to);
    if constexpr (sizeof(W) == 2) expand<W, float>(queue, p, rows_of_p, d, change, to);
  });
}

}  // namespace compact::cuda
