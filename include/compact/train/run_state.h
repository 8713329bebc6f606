#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "compact/data/loader.h"
#include "compact/train/engine.h"
#include "compact/train/run_config.h"

namespace compact {

/// What state.json keeps beside the weights and the optimizer's states: enough to go on bit for bit.
struct RunState {
  std::int64_t step = 0;            ///< finished steps; the next update has this index
  std::int64_t tokens = 0;          ///< counted tokens so far
  std::int64_t exponent = 0;        ///< Adam's t: updates applied
  std::int64_t window_start = 0;    ///< the same when the present P was drawn
  std::int64_t sample = 0;          ///< the loader's state
  std::int64_t skipped_in_row = 0;  ///< non-finite steps just before
  std::int64_t skipped = 0;         ///< and in all
};

/// A name for the data of a run that changes when the data does: counts and hashes of its shards.
std::string data_fingerprint(const Dataset& dataset);

/// Writes RUN/checkpoints/step_N, then removes old ones beyond `train.keep`. `read` is asked for the weights
/// and then for Optimizer::states, each in its order; where it is empty, all of them must be here as a whole.
/// Throws RunError.
void save_run(Engine& engine, const RunConfig& run, const RunState& state, const std::string& fingerprint,
              const std::string& tokenizer_file, const HostReader& read = {});

/// A checkpoint to go on from, checked against what the user asks for now.
struct Resumed {
  std::string folder;
  RunState state;
  RunConfig config;  ///< of the run when it was saved
};

/// Finds the newest checkpoint of `run.train.out_dir` and checks: its files against the manifest, changed
/// keys (only those of compare_configs that may change, and a larger train.steps), the model, the data.
/// `warn` is told of folders that are passed over. Throws InputError.
Resumed find_resume(const RunConfig& run, const ModelConfig& model, const std::string& fingerprint,
                    const std::function<void(const std::string&)>& warn);

/// Reads weights, the optimizer states that the engine has, and Adam's exponent of `from` into the engine.
/// Throws InputError.
void restore(Engine& engine, const Resumed& from);

}  // namespace compact
