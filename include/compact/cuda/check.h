#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string_view>

namespace compact::cuda {

/// Throws RunError naming `what` (an op, or the call) and the error, with what to do where that is known.
void check(cudaError_t result, std::string_view what);
void check(cublasStatus_t result, std::string_view what);

}  // namespace compact::cuda
