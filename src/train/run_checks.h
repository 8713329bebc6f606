#pragma once
#include <string>

#include "compact/train/run_config.h"

namespace compact {

/// What single keys cannot tell: values that do not fit one another. Throws InputError that names the file
/// and keys. `ranks` share the run's steps; kUnknownRanks leaves out how.
void check_run_config(const RunConfig& config, const std::string& name, int ranks);

}  // namespace compact
