#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "cuda_emulation/fibers.h"

/// The calls of the CUDA runtime that the backend makes, on memory of the host. Streams run their work at
/// once, or keep it while they capture a graph.
namespace {

using Work = std::function<void()>;

constexpr std::size_t kGuardBytes = 128;
constexpr unsigned char kGuard = 0xA5, kPoison = 0xFF;

}  // namespace

struct CUstream_st {
  bool capturing = false;
  std::vector<Work> captured;
};
struct CUevent_st {};
struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};

namespace compact::cuda::emulation {

void enqueue(cudaStream_t stream, Work work) {
  if (stream != nullptr && stream->capturing)
    stream->captured.push_back(std::move(work));
  else
    work();
}

}  // namespace compact::cuda::emulation

namespace {

/// Memory with guards on both sides; the size stands in front of the first.
void* guarded(std::size_t bytes) {
  auto* base =
      static_cast<unsigned char*>(std::aligned_alloc(256, (256 + bytes + kGuardBytes + 255) / 256 * 256));
  if (base == nullptr) return nullptr;
  std::memset(base, kGuard, 256);
  std::memcpy(base, &bytes, sizeof(bytes));
  std::memset(base + 256, kPoison, bytes);
  std::memset(base + 256 + bytes, kGuard, kGuardBytes);
  return base + 256;
}

bool guards_hold(const void* memory) {
  const auto* at = static_cast<const unsigned char*>(memory);
  std::size_t bytes = 0;
  std::memcpy(&bytes, at - 256, sizeof(bytes));
  for (std::size_t i = 0; i < kGuardBytes; ++i)
    if (at[bytes + i] != kGuard || *(at - 1 - i) != kGuard) return false;
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
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOfTheEmulation";
}
const char* cudaGetErrorString(cudaError_t) { return "the emulation refused a call"; }

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
  if (!guards_hold(memory)) {
    std::fputs("cuda emulation: a write outside of an allocation\n", stderr);
    std::abort();
  }
  std::free(static_cast<unsigned char*>(memory) - 256);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  compact::cuda::emulation::enqueue(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
// As on a device: waiting is not possible while capturing.
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return stream->capturing ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capturing) return cudaErrorIllegalState;
  stream->capturing = true;
  stream->captured.clear();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!stream->capturing) return cudaErrorIllegalState;
  stream->capturing = false;
  *graph = new CUgraph_st{std::move(stream->captured)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const Work& work : executable->work) compact::cuda::emulation::enqueue(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

}  // extern "C"
