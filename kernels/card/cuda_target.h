#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "compact/cuda/check.h"
#include "compact/cuda/range.h"

/// What kernels/launch_cuda.h promises, on a card.
#define COMPACT_SHARED(Type, name, extents) __shared__ __align__(128) Type name extents
#define COMPACT_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]

namespace compact::cuda {

template <typename Vector>
__device__ __forceinline__ Vector load_vector(const void* from) {
  return *static_cast<const Vector*>(from);
}
/// The offset of zero is hidden from the compiler, which in unrolled loops otherwise takes the store apart
/// into single elements; it still sees which memory `to` points to.
template <typename Vector>
__device__ __forceinline__ void store_vector(void* to, const Vector& value) {
  std::int64_t zero = 0;
  asm("" : "+l"(zero));
  *reinterpret_cast<Vector*>(static_cast<char*>(to) + zero) = value;
}

__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

namespace target {

/// More shared memory than 48 KiB, static arrays included, must be asked for, once a kernel and device. The
/// limit is never lowered: launches that were recorded with more still come.
inline void allow_shared(const void* kernel, std::int64_t bytes, std::string_view op) {
  static std::map<std::pair<const void*, int>, std::int64_t> allowed;
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  int device = 0;
  check(cudaGetDevice(&device), op);
  std::int64_t& most = allowed[{kernel, device}];
  if (bytes <= most) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        op);
  most = bytes;
}

template <typename... Parameters>
void run(std::string_view op, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::int64_t shared_bytes,
         cudaStream_t stream, Parameters... parameters) {
  constexpr std::int64_t kFreely = 40 * 1024;  // leaves room for small static arrays beside
  if (shared_bytes > kFreely) allow_shared(reinterpret_cast<const void*>(kernel), shared_bytes, op);
  const Range range(op.data());  // ops are string literals
  kernel<<<grid, block, static_cast<std::size_t>(shared_bytes), stream>>>(parameters...);
  check(cudaGetLastError(), op);
}

}  // namespace target
}  // namespace compact::cuda
