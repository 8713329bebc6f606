#pragma once
#include <string>

#include "compact/dist/communicator.h"
#include "compact/model/config.h"
#include "compact/train/run_config.h"

namespace compact {

/// What the command line asks beyond the run file.
struct TrainRequest {
  RunConfig run;
  std::string run_file;  ///< for messages
  bool resume = false;
  bool dry_run = false;  ///< check everything, print the plan, write nothing
};

/// The model a run file asks for: of its `model` file or of the folder of `init_from`, where a run folder is
/// replaced by its newest checkpoint. Throws InputError.
ModelConfig model_of(RunConfig& run);

/// Throws InputError where `run` asks for a device that this build plans but does not compute on, or for a
/// model that the device's kernels do not take.
void check_computable(const RunConfig& run, const ModelConfig& model, const std::string& run_file);

/// Names on stderr every setting that differs from its default and changes nothing in this run.
void warn_of_unused_settings(const RunConfig& run, const std::string& run_file);

/// `compact train` (design, section 6), the part of one rank of it. Throws InputError for bad input (before
/// anything is written) and RunError for a run that failed; the last good checkpoint stays in either case.
/// What all ranks find out together rank 0 throws, and the others throw SaidElsewhere.
void train(const TrainRequest& request, Communicator& communicator);

}  // namespace compact
