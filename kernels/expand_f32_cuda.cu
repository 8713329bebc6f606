#include "kernels/by_type.h"
#include "kernels/expand_cuda.h"
#include "kernels/stage_cuda.h"

/// w [m, n] = kept · w + d [m, r] · Pᵀ in fp32: 2 m n r operations outside of the tensor cores are the floor
/// from r = 60 on (67 TFLOP/s and 4.8 TB/s), w read and written below.
namespace compact::cuda {

namespace {

using Values = Matrix<float, false>;

constexpr int kTileRows = 128, kTileColumns = 64, kDepth = 16;
/// Tiles lie with the inner dimension outside, so that a thread reads its rows, or columns, as vectors.
constexpr int kRowPad = 4;
/// Of the thread's part of the tile.
constexpr int kRows = 8, kColumns = 4;
constexpr int kAcross = kTileColumns / kColumns;  // threads along a row

/// Elements that a thread carries of a tile of kSize rows.
template <int kSize>
inline constexpr int kCarried = kSize* kDepth / kStageThreads;

/// Half a warp has the kDepth neighbours of a row.
__device__ __forceinline__ int carried_row(int i) {
  return static_cast<int>(threadIdx.x) / kDepth + i * (kStageThreads / kDepth);
}
__device__ __forceinline__ int carried_column() { return static_cast<int>(threadIdx.x) % kDepth; }

template <int kSize>
__device__ __forceinline__ void load(float (&r)[kCarried<kSize>], const Values& x, std::int64_t row,
                                     std::int64_t column) {
#pragma unroll
  for (int i = 0; i < kCarried<kSize>; ++i) {
    const std::int64_t at_row = row + carried_row(i), at_column = column + carried_column();
    r[i] = at_row < x.rows && at_column < x.cols ? x.data[at_row * x.ld + at_column] : 0.0f;
  }
}
template <int kSize>
__device__ __forceinline__ void store(const float (&r)[kCarried<kSize>], const Values&,
                                      float (*to)[kSize + kRowPad]) {
#pragma unroll
  for (int i = 0; i < kCarried<kSize>; ++i) to[carried_column()][carried_row(i)] = r[i];
}

// P on the fly: a thread makes one block of four.
static_assert(kCarried<kTileColumns> == 4);
template <int kSize>
__device__ __forceinline__ void load(float (&r)[4], const Gaussian& p, std::int64_t row,
                                     std::int64_t column) {
  const Four four = four_deviates(p, row + threadIdx.x / 4, column + threadIdx.x % 4 * 4);
#pragma unroll
  for (int k = 0; k < 4; ++k) r[k] = p.through_bf16 != 0 ? to_float(nearest_bf16(four.x[k])) : four.x[k];
}
template <int kSize>
__device__ __forceinline__ void store(const float (&r)[4], const Gaussian&, float (*to)[kSize + kRowPad]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) to[threadIdx.x % 4 * 4 + k][threadIdx.x / 4] = r[k];
}

/// Each sum runs over r in order. `p` holds the rows of P for the columns of w.
template <typename W, typename Source>
__global__ __launch_bounds__(kStageThreads, 2) void expand_f32_kernel(Weight<W> w, Values d, Source p,
                                                                      const WeightChange* live) {
  COMPACT_SHARED(float, a_tiles, [2][kDepth][kTileRows + kRowPad]);
  COMPACT_SHARED(float, b_tiles, [2][kDepth][kTileColumns + kRowPad]);
  const WeightChange change = *live;
  if (gate_closed(change.gate)) return;

  const std::int64_t row_tiles = (w.rows + kTileRows - 1) / kTileRows;
  const std::int64_t row0 = blockIdx.x % row_tiles * kTileRows,
                     column0 = blockIdx.x / row_tiles * kTileColumns;
  const int row = static_cast<int>(threadIdx.x) / kAcross * kRows,
            column = static_cast<int>(threadIdx.x) % kAcross * kColumns;
  float sums[kRows][kColumns] = {};

  float a[kCarried<kTileRows>], b[kCarried<kTileColumns>];
  load<kTileRows>(a, d, row0, 0);
  load<kTileColumns>(b, p, column0, 0);
  store<kTileRows>(a, d, a_tiles[0]);
  store<kTileColumns>(b, p, b_tiles[0]);
  __syncthreads();
  int now = 0;
  for (std::int64_t k = 0; k < d.cols; k += kDepth, now ^= 1) {
    const bool more = k + kDepth < d.cols;
    if (more) {
      load<kTileRows>(a, d, row0, k + kDepth);
      load<kTileColumns>(b, p, column0, k + kDepth);
    }
#pragma unroll 4
    for (int step = 0; step < kDepth; ++step) {
      const float4 above = load_vector<float4>(&a_tiles[now][step][row]),
                   below = load_vector<float4>(&a_tiles[now][step][row + 4]),
                   across = load_vector<float4>(&b_tiles[now][step][column]);
      const float rows[kRows] = {above.x, above.y, above.z, above.w, below.x, below.y, below.z, below.w};
      const float columns[kColumns] = {across.x, across.y, across.z, across.w};
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sums[i][j] = fmaf(rows[i], columns[j], sums[i][j]);
    }
    if (more) {
      store<kTileRows>(a, d, a_tiles[now ^ 1]);
      store<kTileColumns>(b, p, b_tiles[now ^ 1]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    change_four(w, change, row0 + row + i, column0 + column,
                {{sums[i][0], sums[i][1], sums[i][2], sums[i][3]}});
}

}  // namespace

void expand_f32(Queue& queue, const Projection& p, const Tensor& rows_of_p, const Tensor& d,
                const WeightChange* change, std::int64_t first_column, const Tensor& w,
                const Tensor& nearest) {
  const std::int64_t tiles =
      (w.rows() + kTileRows - 1) / kTileRows * ((w.cols() + kTileColumns - 1) / kTileColumns);
  const Launch where{"expand_add", static_cast<unsigned>(tiles), kStageThreads};
  by_type(w.dtype, [&](auto type) {
    using W = decltype(type);
    const Weight<W> to = weight<W>(w, first_column, nearest);
    if (rows_of_p.empty())
      launch(queue, where, expand_f32_kernel<W, Gaussian>, to, matrix<float, false>(d), gaussian(p), change);
    else
      launch(queue, where, expand_f32_kernel<W, Values>, to, matrix<float, false>(d),
             matrix<float, false>(rows_of_p), change);
  });
}

}  // namespace compact::cuda
