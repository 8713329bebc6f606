#pragma once
#include <memory>

#include "compact/optim/optimizer.h"

namespace compact {

/// The makers of the optimizers, one for each file; optimizer.cpp lists them by name.
std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_projected_adam(const OptimizerOptions& options);

}  // namespace compact
