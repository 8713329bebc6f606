#include <algorithm>

#include "compact/core/error.h"
#include "compact/cuda/device.h"
#include "compact/io/checkpoint.h"
#include "compact/train/cuda_device.h"
#include "compact/train/trainer.h"

/// What commands do with a run file before anything starts.
namespace compact {

ModelConfig model_of(RunConfig& run) {
  if (!run.init_from.empty()) run.init_from = resolve_checkpoint(run.init_from);
  ModelConfig model = load_model_config(run.init_from.empty() ? run.model : run.init_from + "/config.json");
  // RoPE has no table of positions to run out of: longer sequences only raise what the checkpoint's config
  // says.
  if (model.max_positions > 0) model.max_positions = std::max(model.max_positions, run.data.sequence_length);
  return model;
}

void check_computable(const RunConfig& run, const ModelConfig& model, const std::string& run_file) {
  if (run.device != "cuda") return;
  if (!cuda::is_built())
    input_error(
        "{}: device \"cuda\": this build of compact has no CUDA backend; build it where nvcc is "
        "(docs/cuda.md), "
        "or use \"cpu\"",
        run_file);
  check_cuda_computes(model, run_file);
}

void warn_of_unused_settings(const RunConfig& run, const std::string& run_file) {
  for (const std::string& key : unused_settings(run))
    fmt::print(stderr, "compact: warning: {}: {} changes nothing in this run\n", run_file, key);
}

}  // namespace compact
