#include "compact/cuda/check.h"

#include "compact/core/error.h"

namespace compact::cuda {

namespace {
const char* name_of(cublasStatus_t result) { return cublasLtGetStatusName(result); }
}  // namespace

void check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // forget it: it is told here, and must not be taken for an error of the next launch
  const char *name = cudaGetErrorName(result), *text = cudaGetErrorString(result);
  if (result == cudaErrorMemoryAllocation)
    run_error(
        "{}: not enough memory on the CUDA device ({}). Less is needed with memory.preset \"block\", a "
        "smaller batch.micro_batch, or optimizer.name \"compact\"; `compact plan` shows what each takes.",
        what, name);
  run_error(
      "{}: CUDA error {} ({}). Errors of kernels show late: cuda.sync_checks=true names the op that failed.",
      what, name, text);
}

void check(cublasStatus_t result, std::string_view what) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  run_error("{}: cuBLASLt error {}", what, name_of(result));
}

}  // namespace compact::cuda
