#include "kernels/projection_cuda.h"

#include <type_traits>

#include "kernels/by_type.h"
#include "kernels/expand_cuda.h"
#include "kernels/stage_cuda.h"

namespace compact::cuda {

namespace {

constexpr int kRows = static_cast<int>(kProjectRows), kColumns = static_cast<int>(kProjectColumns),
              kDepth = 64;

template <typename Z>
struct Result {
  Z* data;
  std::int64_t ld, rows, cols;
};

/// z [N, r] = x [N, n] · P, a tile of z for each block, P made in shared memory. Floor where it is used: the
/// making of P (projection_cuda.h); x is read r / 32 times, all but the first from a cache. Each of eight
/// warps has 16 rows.
template <typename Z, typename X>
__global__ __launch_bounds__(kStageThreads, 2) void project_kernel(Result<Z> z, X x, Gaussian p) {
  static_assert(kStageThreads * 8 == kDepth * kColumns);
  COMPACT_SHARED(Bf16, x_tiles, [2][kRows][kDepth + kPad]);
  COMPACT_SHARED(Bf16, p_tiles, [2][kDepth][kColumns + kPad]);
  const std::int64_t row_tiles = (z.rows + kRows - 1) / kRows;
  const std::int64_t row0 = blockIdx.x % row_tiles * kRows, column0 = blockIdx.x / row_tiles * kColumns;
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  float sums[kColumns / 8][4] = {};
  const bool needed = row0 + warp_row < z.rows;

  Staged<kRows, kDepth> rows;
  Staged<kDepth, kColumns> made;
  rows.load(x, row0, 0);
  made.load(p, 0, column0);
  rows.store(x, x_tiles[0]);
  made.store(p, p_tiles[0]);
  __syncthreads();
  int now = 0;
  for (std::int64_t k = 0; k < p.rows; k += kDepth, now ^= 1) {
    const bool more = k + kDepth < p.rows;
    if (more) {
      rows.load(x, row0, k + kDepth);
      made.load(p, k + kDepth, column0);
    }
    if (needed) {
#pragma unroll
      for (int step = 0; step < kDepth; step += 16) {
        std::uint32_t a[4];
        load_tiles_4(a, &x_tiles[now][warp_row + lane % 16][step + lane / 16 * 8]);
#pragma unroll
        for (int j = 0; j < kColumns / 16; ++j) {
          std::uint32_t b[4];
          load_tiles_4_transposed(b, &p_tiles[now][step + lane % 16][16 * j + lane / 16 * 8]);
          mma_bf16(sums[2 * j], a, {b[0], b[1]});
          mma_bf16(sums[2 * j + 1], a, {b[2], b[3]});
        }
      }
    }
    if (more) {
      rows.store(x, x_tiles[now ^ 1]);
      made.store(p, p_tiles[now ^ 1]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t row = row0 + warp_row + lane / 4 + i / 2 * 8,
                         column = column0 + 8 * j + 2 * (lane % 4) + i % 2;
      if (row < z.rows && column < z.cols) put(z.data[row * z.ld + column], sums[j][i]);
    }
}

}  // namespace

void project(Queue& queue, const Projection& p, const Tensor& x, const Tensor& z) {
  if (z.rows() == 0) return;
  const std::int64_t tiles = (z.rows() + kRows - 1) / kRows * ((p.r + kColumns - 1) / kColumns);
  by_type(z.dtype, [&](auto type) {
    using Z = decltype(type);
    const auto run = [&](const auto& operand) {
      launch(queue, {"project", static_cast<unsigned>(tiles), kStageThreads},
             project_kernel<Z, std::decay_t<decltype(operand)>>,
             Result<Z>{z.as<Z>(), z.ld, z.rows(), z.cols()}, operand, gaussian(p));
    };
    if (has_eights(x))
      run(matrix<Bf16, true>(x));
    else
      run(matrix<Bf16, false>(x));
  });
}

void expand_add(Queue& queue, const Projection& p, const Tensor& rows_of_p, const Tensor& d, float kept,
                const Rounding& rounding, const float* gate, std::int64_t first_column, const Tensor& w,
                const Tensor& nearest) {
  if (w.rows() == 0) return;
  const WeightChange* change = queue.live(weight_change(kept, rounding, gate));
  const DType products = w.dtype == DType::BF16 ? p.dtype : d.dtype;
  if (products == DType::BF16)
    expand_bf16(queue, p, rows_of_p, d, change, first_column, w, nearest);
  else
    expand_f32(queue, p, rows_of_p, d, change, first_column, w, nearest);
}

}  // namespace compact::cuda
