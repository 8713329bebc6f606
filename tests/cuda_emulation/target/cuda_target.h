#pragma once
// The names that CUDA's compiler has built in. Its headers define away __global__ and friends for g++.
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>

#include "cuda_emulation/fibers.h"

#undef __launch_bounds__
#define __launch_bounds__(...)

/// What kernels/launch_cuda.h promises, with one fiber for each CUDA thread.
#define COMPACT_SHARED(Type, name, extents) \
  alignas(128) static Type name extents;    \
  ::compact::cuda::emulation::enter_shared(&name, sizeof(name))
#define COMPACT_DYNAMIC_SHARED(name) unsigned char* const name = ::compact::cuda::emulation::dynamic_shared()

inline uint3& threadIdx = ::compact::cuda::emulation::thread_index;
inline uint3& blockIdx = ::compact::cuda::emulation::block_index;
inline dim3& blockDim = ::compact::cuda::emulation::block_size;
inline dim3& gridDim = ::compact::cuda::emulation::grid_size;

inline void __syncthreads() { ::compact::cuda::emulation::block_barrier(); }
inline void __syncwarp(unsigned = 0xFFFFFFFFu) { ::compact::cuda::emulation::warp_barrier(); }

template <typename T>
T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  const int own = ::compact::cuda::emulation::lane();
  return ::compact::cuda::emulation::from_lane(value, own / width * width + lane % width);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return ::compact::cuda::emulation::from_lane(value, ::compact::cuda::emulation::lane() ^ mask);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned by) {
  const int own = ::compact::cuda::emulation::lane(), from = own + static_cast<int>(by);
  return ::compact::cuda::emulation::from_lane(value, from < 32 ? from : own);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned by) {
  const int own = ::compact::cuda::emulation::lane(), from = own - static_cast<int>(by);
  return ::compact::cuda::emulation::from_lane(value, from >= 0 ? from : own);
}
inline unsigned __ballot_sync(unsigned, bool predicate) {
  return ::compact::cuda::emulation::ballot(predicate);
}

// Fibers take turns only at barriers, so plain additions are atomic.
inline int atomicAdd(int* to, int value) {
  const int before = *to;
  *to += value;
  return before;
}
inline unsigned atomicAdd(unsigned* to, unsigned value) {
  const unsigned before = *to;
  *to += value;
  return before;
}

namespace compact::cuda {

template <typename Vector>
Vector load_vector(const void* from) {
  emulation::require_aligned(from, sizeof(Vector));
  Vector value;
  std::memcpy(&value, from, sizeof(Vector));
  return value;
}
template <typename Vector>
void store_vector(void* to, const Vector& value) {
  emulation::require_aligned(to, sizeof(Vector));
  std::memcpy(to, &value, sizeof(Vector));
}

inline float fast_exp2(float x) { return std::exp2(x); }

namespace target {

template <typename... Parameters>
void run(std::string_view op, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::int64_t shared_bytes,
         cudaStream_t stream, Parameters... parameters) {
  emulation::enqueue(
      stream, [=] { emulation::run_kernel(op, grid, block, shared_bytes, [=] { kernel(parameters...); }); });
}

}  // namespace target
}  // namespace compact::cuda
