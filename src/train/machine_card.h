#pragma once
#include "compact/core/dtype.h"
#include "compact/cuda/queue.h"

namespace compact {

/// The speeds of a CUDA device (compact/train/machine.h).
double measure_gemm_peak_of_card(DType type, cuda::Queue& queue);
double measure_memory_bandwidth_of_card(cuda::Queue& queue);

}  // namespace compact
