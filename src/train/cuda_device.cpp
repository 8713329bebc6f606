#include "compact/train/cuda_device.h"

#include <algorithm>

#include "compact/core/error.h"
#include "compact/memory/ledger.h"
#include "compact/train/machine.h"
#include "kernels/attention_cuda.h"

namespace compact {

namespace {
/// What the driver takes beside the arena once the run has started: modules, cuBLASLt's kernels, the graph.
constexpr std::int64_t kBesideArena = std::int64_t{768} << 20;
}  // namespace

std::unique_ptr<cuda::Queue> open_queue(const RunConfig& run) {
  if (run.device != "cuda") return nullptr;
  const CudaConfig& c = run.cuda;
  return std::make_unique<cuda::Queue>(
      cuda::QueueOptions{static_cast<int>(c.device), c.graph, c.sync_checks, c.tf32});
}

std::unique_ptr<cuda::Queue> open_queue(const std::string& device) {
  RunConfig run;
  run.device = device;
  return open_queue(run);
}

void check_cuda_computes(const ModelConfig& model, const std::string& where) {
  if (model.head_width() > cuda::kMostHeadWidth)
    input_error(
        "{}: the model's heads are {} wide (hidden_size / num_attention_heads) and the CUDA kernels take at "
        "most {}; use device \"cpu\"",
        where, model.head_width(), cuda::kMostHeadWidth);
}

void require_memory(cuda::Queue* queue, std::int64_t bytes, const std::string& table) {
  if (queue == nullptr) return require_available(bytes, table);
  const cuda::DeviceInfo info = cuda::device_info(queue->options().device);
  const std::int64_t room = std::max<std::int64_t>(0, info.free_memory - kBesideArena);
  if (bytes <= room) return;
  run_error(
      "not enough memory on {}: the run needs {} and {} of {} are free, of which the driver takes up to {} "
      "for its "
      "own. It needs\n{}Less is needed with memory.preset \"block\", a smaller batch.micro_batch, or "
      "optimizer.name "
      "\"compact\"; `compact plan --fit {}` finds the fastest settings that fit.",
      info.name, human_bytes(bytes), human_bytes(info.free_memory), human_bytes(info.memory),
      human_bytes(kBesideArena), table, room);
}

}  // namespace compact
