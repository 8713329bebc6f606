#include "src/cuda/code.h"

#include <cuda_runtime_api.h>

#include "kernels/launch_cuda.h"

namespace compact::cuda {

namespace {
__global__ void probe_kernel() {}
}  // namespace

bool has_code_for_device() {
  cudaFuncAttributes attributes{};
  const bool found =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&probe_kernel)) == cudaSuccess;
  if (!found) cudaGetLastError();  // answered here: the next call shall not report it
  return found;
}

}  // namespace compact::cuda
