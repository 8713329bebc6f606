#include "compact/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "compact/core/error.h"

namespace compact {

Schedule::Schedule(const ScheduleSettings& settings) : settings_(settings) {
  const ScheduleSettings& s = settings_;
  require(s.name == "cosine" || s.name == "linear" || s.name == "wsd" || s.name == "constant", "schedule",
          "name");
  require(s.warmup_steps >= 0 && s.warmup_steps <= s.steps, "schedule", "warm-up longer than the run");
  descent_from_ = s.name == "wsd" ? s.steps - s.decay_steps : s.warmup_steps;
  require(descent_from_ >= s.warmup_steps && descent_from_ <= s.steps, "schedule",
          "decay does not fit the run");
}

double Schedule::lr(std::int64_t update) const {
  const ScheduleSettings& s = settings_;
  if (update < s.warmup_steps) {
    return s.peak * static_cast<double>(update) / static_cast<double>(s.warmup_steps);
  }
  if (s.name == "constant" || update < descent_from_) return s.peak;
  const double length = static_cast<double>(std::max<std::int64_t>(1, s.steps - descent_from_));
  const double x = std::min(1.0, static_cast<double>(update - descent_from_) / length);
  const double left = s.name == "cosine" ? (1 + std::cos(std::numbers::pi * x)) / 2 : 1 - x;
  return s.peak * (s.final_fraction + (1 - s.final_fraction) * left);
}

std::string Schedule::describe() const {
  const ScheduleSettings& s = settings_;
  std::string line =
      fmt::format("{} over {} steps: {} of warm-up to {}", s.name, s.steps, s.warmup_steps, s.peak);
  if (s.name == "constant") return line + ", then flat";
  if (s.name == "wsd") line += fmt::format(", flat to step {}", descent_from_);
  return line + fmt::format(", then down to {}", s.peak * s.final_fraction);
}

}  // namespace compact
