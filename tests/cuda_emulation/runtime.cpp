#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "cuda_emulation/device_memory.h"
#include "cuda_emulation/faults.h"
#include "cuda_emulation/streams.h"

/// The calls of the CUDA runtime that the backend makes for devices and memory, on memory of the host. All
/// devices of the machine are alike.
namespace emulation = compact::cuda::emulation;

namespace {
compact::testing::EmulatedMachine machine{.driver = CUDART_VERSION};
std::mutex faults_mutex;
std::map<int, compact::testing::RankFault> rank_faults;
}  // namespace

namespace compact::testing {
void set_machine(const EmulatedMachine& other) { machine = other; }
void set_rank_fault(int rank, RankFault fault) {
  const std::lock_guard lock(faults_mutex);
  rank_faults[rank] = fault;
}
RankFault rank_fault(int rank) {
  const std::lock_guard lock(faults_mutex);
  return rank_faults[rank];
}
}  // namespace compact::testing

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine.devices;
  // As the runtime does it where the driver is older than the runtime's major version.
  if (machine.driver / 1000 < CUDART_VERSION / 1000) return cudaErrorInsufficientDriver;
  return machine.devices == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine.driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated CUDA device");
  properties->major = machine.major;
  properties->minor = machine.minor;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute != cudaDevAttrMultiProcessorCount) return cudaErrorInvalidValue;
  *value = 4;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) {
  return machine.has_code ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (device < 0 || device >= machine.devices) return cudaErrorInvalidDevice;
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", device + 16);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device >= 0 && device < machine.devices ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{8} << 30;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = emulation::allocate_guarded(bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  emulation::finish_all();
  emulation::free_guarded(memory);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

}  // extern "C"
