#include "compact/optim/optimizer.h"

#include <array>

#include "compact/core/error.h"
#include "compact/optim/table.h"

namespace compact {

namespace {
struct Entry {
  std::string_view name;
  std::unique_ptr<Optimizer> (*make)(const OptimizerOptions&);
};
constexpr std::array kOptimizers = {Entry{"adamw", make_adamw}, Entry{"compact", make_projected_adam}};
}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  std::string names;
  for (const Entry& entry : kOptimizers) {
    if (entry.name == options.name) return entry.make(options);
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  input_error("optimizer.name: no optimizer \"{}\"; there are {}", options.name, names);
}

}  // namespace compact
