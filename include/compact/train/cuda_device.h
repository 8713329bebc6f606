#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "compact/cuda/device.h"
#include "compact/cuda/queue.h"
#include "compact/model/config.h"
#include "compact/train/run_config.h"

namespace compact {

/// The queue of the device that a run asks for: null on the CPU. Throws InputError or RunError where the CUDA
/// device cannot be had (no backend in this build, no driver, no card).
std::unique_ptr<cuda::Queue> open_queue(const RunConfig& run);
/// The same for a command line's --device (cpu or cuda).
std::unique_ptr<cuda::Queue> open_queue(const std::string& device);

/// Throws InputError, beginning with `where`, for a model that the CUDA kernels do not take.
void check_cuda_computes(const ModelConfig& model, const std::string& where);

/// Throws RunError where `bytes` cannot be had on the device of `queue`, or in host memory where it is null.
/// `table` says what they are for.
void require_memory(cuda::Queue* queue, std::int64_t bytes, const std::string& table);

}  // namespace compact
