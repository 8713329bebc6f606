#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "compact/cuda/device.h"
#include "compact/cuda/queue.h"
#include "compact/dist/communicator.h"
#include "compact/model/config.h"
#include "compact/train/run_config.h"

namespace compact {

/// The queue of the device that a run asks for: null on the CPU. Throws InputError or RunError where the CUDA
/// device cannot be had (no backend in this build, no driver, no card).
std::unique_ptr<cuda::Queue> open_queue(const RunConfig& run);
/// The same for a command line's --device (cpu or cuda).
std::unique_ptr<cuda::Queue> open_queue(const std::string& device);

/// The same for a rank of several: on choose_card(ranks, cuda.device). Collective where the run asks for
/// cuda.
std::unique_ptr<cuda::Queue> open_queue(const RunConfig& run, Communicator& ranks);

/// The card of this rank: `first` + its number among the ranks of its machine, counted among the cards that
/// the driver shows to it; where it is shown one alone, as by a launcher that sets CUDA_VISIBLE_DEVICES for
/// each rank, that one. Collective, with the same calls to `ranks` also where it throws, so that it may be
/// used within `together`. Throws InputError on all ranks, naming the machine, where a rank has no card or
/// shares it with another one; and what cuda::device_info throws for its own card.
int choose_card(Communicator& ranks, int first);

/// Throws InputError, beginning with `where`, for a model that the CUDA kernels do not take.
void check_cuda_computes(const ModelConfig& model, const std::string& where);

/// Throws RunError where `bytes` cannot be had on the device of `queue`, or in host memory where it is null.
/// `table` says what they are for.
void require_memory(cuda::Queue* queue, std::int64_t bytes, const std::string& table);

}  // namespace compact
