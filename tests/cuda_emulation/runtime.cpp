#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_emulation/block_memory.h"
#include "cuda_emulation/sanitizer.h"
#include "cuda_emulation/streams.h"

/// The calls of the CUDA runtime that the backend makes for devices and memory, on memory of the host.
namespace {

constexpr std::size_t kHeader = 256;
constexpr unsigned char kGuard = 0xA5;
using compact::cuda::emulation::kGuardBytes;

/// Memory with guards on both sides; the size stands in front of the first.
void* guarded(std::size_t bytes) {
  auto* base =
      static_cast<unsigned char*>(std::aligned_alloc(256, (kHeader + bytes + kGuardBytes + 255) / 256 * 256));
  if (base == nullptr) return nullptr;
  std::memset(base, kGuard, kHeader);
  std::memcpy(base, &bytes, sizeof(bytes));
  std::memset(base + kHeader, compact::cuda::emulation::kPoison, bytes);
  std::memset(base + kHeader + bytes, kGuard, kGuardBytes);
  compact::cuda::emulation::forbid(base, kHeader);
  compact::cuda::emulation::forbid(base + kHeader + bytes, kGuardBytes);
  return base + kHeader;
}

bool guards_hold(const unsigned char* memory) {
  compact::cuda::emulation::allow(memory - kHeader, kHeader);
  std::size_t bytes = 0;
  std::memcpy(&bytes, memory - kHeader, sizeof(bytes));
  compact::cuda::emulation::allow(memory, bytes + kGuardBytes);
  for (std::size_t i = 0; i < kGuardBytes; ++i)
    if (memory[bytes + i] != kGuard || *(memory - 1 - i) != kGuard) return false;
  return true;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated CUDA device");
  properties->major = 9;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute != cudaDevAttrMultiProcessorCount) return cudaErrorInvalidValue;
  *value = 4;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{8} << 30;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = guarded(bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  compact::cuda::emulation::finish_all();
  if (!guards_hold(static_cast<unsigned char*>(memory))) {
    std::fputs("cuda emulation: a write outside of an allocation\n", stderr);
    std::abort();
  }
  std::free(static_cast<unsigned char*>(memory) - kHeader);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

}  // extern "C"
