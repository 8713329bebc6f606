#pragma once
#include <cstdint>
#include <type_traits>

#include "kernels/fours_cuda.h"

/// The unnormalised Sylvester-Hadamard transform of rows in shared memory, [2^points] floats each, 8 at least
/// (zeros behind an input change nothing). Its stages, one for each bit of a number of a point, are grouped
/// into passes that work on up to 64 points of a thread in registers:
///   the outer pass  bits 0 to 2 and the highest ones: whole vectors of 8 points on their way between global
///                   and shared memory, so that both see neighbours from neighbouring threads
///   inner passes    the bits between, one pass up to 2^12 points and two beyond (32 points each there, since
///                   more registers would leave too few threads to hide latencies)
/// The order of the stages is not that of the CPU's loops, so sums differ from theirs by rounding.
namespace compact::cuda {

inline constexpr int kShortTransform = 12;
/// Threads of a block: a short one has several rows.
template <bool kLong>
inline constexpr int kTransformThreads = kLong ? 256 : 128;

/// Bits of the outer pass beside 0 to 2.
__host__ __device__ constexpr int outer_bits(int points) {
  return points <= 3 ? 0 : points <= 6 ? points - 3 : points <= kShortTransform ? (points + 1) / 2 - 3 : 2;
}
__host__ __device__ constexpr int tile_log(int points) { return points < 3 ? 3 : points; }
__host__ __device__ constexpr int tile_points(int points) { return 1 << tile_log(points); }
/// log2 of the groups of points in the outer pass.
__host__ __device__ constexpr int groups_log(int points) { return tile_log(points) - 3 - outer_bits(points); }
/// log2 of the threads of a row: one for each group, 256 at most.
__host__ __device__ constexpr int threads_log_of(int points) {
  return groups_log(points) < 8 ? groups_log(points) : 8;
}

/// Which row of its block a thread works on, and where.
struct Place {
  int threads_log, points, thread, row, tile;
  __device__ explicit Place(int points_log)
      : threads_log(threads_log_of(points_log)),
        points(tile_points(points_log)),
        thread(static_cast<int>(threadIdx.x) & ((1 << threads_log) - 1)),
        row(static_cast<int>(threadIdx.x) >> threads_log),
        tile(row * points) {}
};

/// x with its sign changed where the lowest bit of `negative` is set.
__device__ __forceinline__ float signed_by(float x, std::uint32_t negative) {
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) ^ negative << 31);
}

/// Where point i lies: pairs of bits from the fifth on go into bits 3 and 4, so that threads whose points
/// differ in bits 0 to 2 and in two neighbouring higher bits meet 32 different banks. Groups of 8 stay whole.
/// bank_of(a ^ b) = bank_of(a) ^ bank_of(b).
__device__ __forceinline__ int bank_of(int i) {
  return i ^ (((i >> 5) ^ (i >> 7) ^ (i >> 9) ^ (i >> 11) ^ (i >> 13)) & 3) << 3;
}

/// All stages between 2^kStages numbers.
template <int kStages>
__device__ __forceinline__ void butterflies(float* v) {
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage)
#pragma unroll
    for (int i = 0; i < 1 << kStages; ++i)
      if ((i >> stage & 1) == 0) {
        const int k = i + (1 << stage);
        const float a = v[i], b = v[k];
        v[i] = a + b;
        v[k] = a - b;
      }
}

/// The outer pass: calls f(bits, group) for each group of this thread. Vector k of a group, k < 2^bits, is
/// points 8 · (group + k · groups) and the seven behind it.
template <bool kLong, typename F>
__device__ __forceinline__ void outer_pass(int points, const Place& at, F&& f) {
  if constexpr (kLong) {
#pragma unroll 1
    for (int group = at.thread; group < 1 << groups_log(points); group += 1 << at.threads_log)
      f(std::integral_constant<int, 2>{}, group);
  } else {
    const int bits = outer_bits(points);
    if (bits == 0) f(std::integral_constant<int, 0>{}, at.thread);
    if (bits == 1) f(std::integral_constant<int, 1>{}, at.thread);
    if (bits == 2) f(std::integral_constant<int, 2>{}, at.thread);
    if (bits == 3) f(std::integral_constant<int, 3>{}, at.thread);
  }
}

/// Bits kFrom .. kFrom + kStages - 1. The first three bits of a group's number are those of its points, so
/// that 32 threads meet 32 banks.
template <int kStages, int kFrom>
__device__ __forceinline__ void inner_pass(float* tile, const Place& at) {
#pragma unroll 1
  for (int group = at.thread; group < at.points >> kStages; group += 1 << at.threads_log) {
    const int low = group & ((1 << kFrom) - 1);
    const int first = bank_of(low | (group >> kFrom) << (kFrom + kStages));
    // bank_of(k << kFrom) changes bits 3 and 4 in four ways; what is above them is a constant offset.
    float* const base[4] = {tile + first, tile + (first ^ 8), tile + (first ^ 16), tile + (first ^ 24)};
    const auto point = [&](int k) -> float& {
      return base[bank_of(k << kFrom) >> 3 & 3][(k << kFrom) & ~31];
    };
    float v[1 << kStages];
#pragma unroll
    for (int k = 0; k < 1 << kStages; ++k) v[k] = point(k);
    butterflies<kStages>(v);
#pragma unroll
    for (int k = 0; k < 1 << kStages; ++k) point(k) = v[k];
  }
}

/// All stages but those of the outer pass, and a meeting of the block after each pass. `there`: this thread
/// has a row.
template <bool kLong>
__device__ __forceinline__ void inner_passes(float* tile, int points, const Place& at, bool there) {
  if constexpr (kLong) {
    if (there) {
      if (points == 13)
        inner_pass<4, 3>(tile, at);
      else
        inner_pass<5, 3>(tile, at);
    }
    __syncthreads();
    if (there) {
      if (points == 13)
        inner_pass<4, 7>(tile, at);
      else
        inner_pass<4, 8>(tile, at);
    }
    __syncthreads();
  } else if (points > 6) {
    if (there) {
      if (points == 7)
        inner_pass<3, 3>(tile, at);
      else if (points <= 9)
        inner_pass<4, 3>(tile, at);
      else if (points <= 11)
        inner_pass<5, 3>(tile, at);
      else
        inner_pass<6, 3>(tile, at);
    }
    __syncthreads();
  }
}

/// Points j .. j + 7 to and from the tile, as two vectors: first that half which makes eight neighbouring
/// threads meet all banks.
__device__ __forceinline__ void store_outer(float* tile, int j, const float* v) {
  float* at = tile + bank_of(j);
  const bool swapped = (j >> 5 & 1) != 0;
  // Chosen element by element: a choice between two float4 would put both into local memory.
  const auto chosen = [&](bool upper) {
    return make_float4(upper ? v[4] : v[0], upper ? v[5] : v[1], upper ? v[6] : v[2], upper ? v[7] : v[3]);
  };
  store_vector(at + (swapped ? 4 : 0), chosen(swapped));
  store_vector(at + (swapped ? 0 : 4), chosen(!swapped));
}
__device__ __forceinline__ void load_outer(float* v, const float* tile, int j) {
  const float* at = tile + bank_of(j);
  const bool swapped = (j >> 5 & 1) != 0;
  const float4 first = load_vector<float4>(at + (swapped ? 4 : 0)),
               second = load_vector<float4>(at + (swapped ? 0 : 4));
  const float4 a = swapped ? second : first, b = swapped ? first : second;
  v[0] = a.x;
  v[1] = a.y;
  v[2] = a.z;
  v[3] = a.w;
  v[4] = b.x;
  v[5] = b.y;
  v[6] = b.z;
  v[7] = b.w;
}

/// The first `left` of eight elements; zeros behind them.
__device__ __forceinline__ void load_eight(float* v, const float* from, bool vectors, std::int64_t left) {
#pragma unroll
  for (int half = 0; half < 8; half += 4) {
    const Four four = load_four(from + half, vectors && left >= half + 4, left - half);
#pragma unroll
    for (int k = 0; k < 4; ++k) v[half + k] = four.x[k];
  }
}
__device__ __forceinline__ void load_eight(float* v, const Bf16* from, bool vectors, std::int64_t left) {
  if (vectors && left >= 8) {
    const uint4 pairs = load_vector<uint4>(from);
    const std::uint32_t pair[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      v[2 * k] = low_bf16(pair[k]);
      v[2 * k + 1] = high_bf16(pair[k]);
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = k < left ? to_float(from[k]) : 0.0f;
}

}  // namespace compact::cuda
