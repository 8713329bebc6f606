#pragma once
// The names that CUDA's compiler has built in. Its headers define away __global__ and friends for g++.
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>

#include "cuda_emulation/block_memory.h"
#include "cuda_emulation/fibers.h"

#undef __launch_bounds__
#define __launch_bounds__(...)

/// What kernels/launch_cuda.h promises, with one fiber for each CUDA thread.
#define COMPACT_SHARED(Type, name, extents)                                                   \
  using name##_type = Type extents;                                                           \
  static constinit thread_local ::compact::cuda::emulation::Shared<name##_type> name##_place; \
  auto& name = name##_place.enter()
#define COMPACT_DYNAMIC_SHARED(name) unsigned char* const name = ::compact::cuda::emulation::dynamic_shared()

using EmulationSite = ::compact::cuda::emulation::Site;

inline void __syncthreads(EmulationSite site = EmulationSite::current()) {
  ::compact::cuda::emulation::block_barrier(site);
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, EmulationSite site = EmulationSite::current()) {
  ::compact::cuda::emulation::warp_barrier(mask, site);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int with, EmulationSite site = EmulationSite::current()) {
  return ::compact::cuda::emulation::from_lane(mask, value, ::compact::cuda::emulation::lane() ^ with, site);
}
inline unsigned __ballot_sync(unsigned mask, bool predicate, EmulationSite site = EmulationSite::current()) {
  return ::compact::cuda::emulation::ballot(mask, predicate, site);
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
  emulation::check_launch(op, grid, block, shared_bytes);
  emulation::enqueue(
      stream, [=] { emulation::run_kernel(op, grid, block, shared_bytes, [=] { kernel(parameters...); }); });
}

}  // namespace target
}  // namespace compact::cuda
