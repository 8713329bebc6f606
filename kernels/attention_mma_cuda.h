#pragma once
#include <cmath>

#include "kernels/attention_call_cuda.h"
#include "kernels/fours_cuda.h"
#include "kernels/mma_cuda.h"

/// Tiles of the tensor-core attention kernels. A block has 4 warps; a warp owns 16 · kGroups of the block's
/// rows. Tiles lie in shared memory with D padded by zeros to kWidth = 32, 64, 96 or 128, and rows 16 bytes
/// further apart than that: an odd number of 16-byte pieces, so that the eight rows which ldmatrix reads at
/// once lie in different banks. Sums are fp32 in registers: c[group][n][4] holds columns 8n .. 8n + 7 of 16
/// rows as mma_cuda.h says.
namespace compact::cuda::attention {

inline constexpr int kThreads = 128, kWarps = kThreads / kWarp;

template <int kWidth>
inline constexpr int kPitch = kWidth + 8;  ///< elements from one row to the next

/// Rows of the tile that is streamed: two of them, of two tensors each, are there at once. Wide heads take
/// less, so that two blocks have room in 164 KiB, and one in the 99 KiB of smaller cards.
template <int kWidth>
inline constexpr int kStreamed = kWidth <= 64 ? 64 : 32;
/// Bytes of shared memory for `own` rows that stay and the streamed ones.
template <int kWidth>
constexpr std::int64_t tile_bytes(int own) {
  return static_cast<std::int64_t>(own + 4 * kStreamed<kWidth>) * kPitch<kWidth> * 2;
}

__device__ __forceinline__ int warp_of_block() { return static_cast<int>(threadIdx.x) / kWarp; }
__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x) % kWarp; }

/// Over the four lanes that have a row of a product's result between them.
__device__ __forceinline__ float sum_of_row(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}
__device__ __forceinline__ float most_of_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

/// Begins to copy rows first .. first + kRows of `from` [rows, D] to a tile: zeros outside.
template <int kRows, int kWidth>
__device__ __forceinline__ void fetch_rows(Bf16* to, const Bf16* from, std::int64_t ld, std::int64_t first,
                                           std::int64_t rows, std::uint32_t D) {
  constexpr int kPieces = kWidth / 8, kTurns = kRows * kPieces / kThreads;
  static_assert(kRows * kPieces % kThreads == 0);
  const int thread = static_cast<int>(threadIdx.x),
            left = static_cast<int>(lesser(rows - first, std::int64_t{kRows}));
  if constexpr (kThreads % kPieces == 0) {  // a thread stays in its column
    constexpr int kDown = kThreads / kPieces;
    const int column = thread % kPieces * 8, row = thread / kPieces;
    const bool inside = column < static_cast<int>(D);
    // What is not valid is not read, so the address may run on behind the rows.
    const Bf16* at = inside ? from + (first + row) * ld + column : from;
    const std::int64_t down = inside ? kDown * ld : 0;
#pragma unroll
    for (int i = 0; i < kTurns; ++i, at += down)
      copy_async_16(to + (row + i * kDown) * kPitch<kWidth> + column, at, inside && row + i * kDown < left);
  } else {
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int piece = i * kThreads + thread, row = piece / kPieces, column = piece % kPieces * 8;
      const bool valid = row < left && column < static_cast<int>(D);
      copy_async_16(to + row * kPitch<kWidth> + column, valid ? from + (first + row) * ld + column : from,
                    valid);
    }
  }
}

/// c += a · bᵀ: a [16 · kGroups, kWidth] are the warp's rows of a tile, b [8 · kN, kWidth] is a tile.
template <int kWidth, int kGroups, int kN>
__device__ __forceinline__ void add_dots(float (&c)[kGroups][kN][4], const Bf16* a, const Bf16* b) {
  const int lane = lane_of_warp();
  const Bf16* const at_a = a + lane % 16 * kPitch<kWidth> + lane / 16 * 8;
  const Bf16* const at_b = b + (lane % 8 + lane / 16 * 8) * kPitch<kWidth> + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < kWidth; k += 16) {
    std::uint32_t left[kGroups][4];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) load_tiles_4(left[i], at_a + 16 * i * kPitch<kWidth> + k);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      std::uint32_t right[4];
      load_tiles_4(right, at_b + 8 * n * kPitch<kWidth> + k);
      const std::uint32_t even[2] = {right[0], right[1]}, odd[2] = {right[2], right[3]};
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        mma_bf16(c[i][n], left[i], even);
        mma_bf16(c[i][n + 1], left[i], odd);
      }
    }
  }
}

/// c += w · b, w [16 · kGroups, 8 · kN] rounded to BF16, b [8 · kN, kWidth] a tile. What the first product
/// leaves in a lane's registers is what the second takes as its left operand there.
template <int kWidth, int kGroups, int kN>
__device__ __forceinline__ void add_weighted(float (&c)[kGroups][kWidth / 8][4],
                                             const float (&w)[kGroups][kN][4], const Bf16* b) {
  const int lane = lane_of_warp();
  const Bf16* const at = b + lane % 16 * kPitch<kWidth> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kN; k += 2) {
    std::uint32_t left[kGroups][4];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      left[i][0] = pack_bf16(w[i][k][0], w[i][k][1]);
      left[i][1] = pack_bf16(w[i][k][2], w[i][k][3]);
      left[i][2] = pack_bf16(w[i][k + 1][0], w[i][k + 1][1]);
      left[i][3] = pack_bf16(w[i][k + 1][2], w[i][k + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < kWidth / 8; n += 2) {
      std::uint32_t right[4];
      load_tiles_4_transposed(right, at + 8 * k * kPitch<kWidth> + 8 * n);
      const std::uint32_t even[2] = {right[0], right[1]}, odd[2] = {right[2], right[3]};
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        mma_bf16(c[i][n], left[i], even);
        mma_bf16(c[i][n + 1], left[i], odd);
      }
    }
  }
}

/// Hides what lies behind the diagonal from scores whose first column stands `ahead` of their first row: keys
/// of later positions than their query's, where keys go across, or down for kKeysDown.
template <bool kKeysDown, int kGroups, int kN>
__device__ __forceinline__ void hide_later(float (&c)[kGroups][kN][4], std::int64_t ahead) {
  const int lane = lane_of_warp(), from = static_cast<int>(ahead) + 2 * (lane % 4) - lane / 4;
#pragma unroll
  for (int i = 0; i < kGroups; ++i)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column_ahead = from + 8 * n + e % 2 - 16 * i - e / 2 * 8;
        if (kKeysDown ? column_ahead < 0 : column_ahead > 0) c[i][n][e] = -INFINITY;
      }
}

/// Writes the warp's rows c · factor to rows first .. of `to` [rows, D], by way of the warp's own rows of a
/// tile, which no other warp uses, so that memory is written in pieces of 16 bytes.
template <int kWidth, int kGroups>
__device__ __forceinline__ void write_rows(Bf16* to, std::int64_t ld, std::int64_t first, std::int64_t rows,
                                           std::uint32_t D, const float (&c)[kGroups][kWidth / 8][4],
                                           const float (&factor)[kGroups][2], Bf16* tile) {
  constexpr int kPieces = kWidth / 8;
  const int lane = lane_of_warp(), g = lane / 4, t = lane % 4;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kGroups; ++i)
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_vector<std::uint32_t>(
            tile + (16 * i + g + 8 * half) * kPitch<kWidth> + 8 * n + 2 * t,
            pack_bf16(c[i][n][2 * half] * factor[i][half], c[i][n][2 * half + 1] * factor[i][half]));
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16 * kGroups * kPieces / kWarp; ++i) {
    const int piece = i * kWarp + lane, row = piece / kPieces, column = piece % kPieces * 8;
    if (first + row < rows && column < static_cast<int>(D))
      store_vector(to + (first + row) * ld + column,
                   load_vector<uint4>(tile + row * kPitch<kWidth> + column));
  }
}

/// Calls f with the padded head width as a constant.
template <typename F>
void by_width(std::uint32_t D, F&& f) {
  if (D <= 32)
    f(std::integral_constant<int, 32>{});
  else if (D <= 64)
    f(std::integral_constant<int, 64>{});
  else if (D <= 96)
    f(std::integral_constant<int, 96>{});
  else
    f(std::integral_constant<int, 128>{});
}

}  // namespace compact::cuda::attention
