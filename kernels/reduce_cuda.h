#pragma once
#include "kernels/launch_cuda.h"

/// Sums and maxima over the threads of a warp or a block, in an order that depends on their number alone.
namespace compact::cuda {

/// The same bits in every lane.
template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
  return value;
}

/// The same bits in all `threads` of a group: a block is gridded as [groups][threads], threads in x, a
/// multiple of 32; all groups call it. `places` [threads of the block / 32] is shared memory, free again when
/// the call returns.
template <typename T>
__device__ __forceinline__ T group_sum(T value, int threads, T* places) {
  value = warp_sum(value);
  if (threads == kWarp) return value;
  const int warps = threads / kWarp, first = static_cast<int>(threadIdx.y) * warps;
  if (threadIdx.x % kWarp == 0) places[first + static_cast<int>(threadIdx.x) / kWarp] = value;
  __syncthreads();
  T total = places[first];
  for (int warp = 1; warp < warps; ++warp) total += places[first + warp];
  __syncthreads();
  return total;
}

/// The same over a block with threads in x only.
template <typename T>
__device__ __forceinline__ T block_sum(T value, T* places) {
  return group_sum(value, static_cast<int>(blockDim.x), places);
}

/// A NaN is passed over.
__device__ __forceinline__ float block_max(float value, float* places) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, mask));
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (threadIdx.x % kWarp == 0) places[threadIdx.x / kWarp] = value;
  __syncthreads();
  float most = places[0];
  for (int warp = 1; warp < warps; ++warp) most = fmaxf(most, places[warp]);
  __syncthreads();
  return most;
}

}  // namespace compact::cuda
