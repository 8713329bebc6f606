#pragma once
#include <cstdint>
#include <string>

namespace compact {

/// What a learning-rate schedule is made of, in whole updates.
struct ScheduleSettings {
  std::string name = "cosine";    ///< cosine, linear, wsd, constant
  double peak = 0;                ///< highest learning rate
  std::int64_t steps = 0;         ///< S: updates of the whole run
  std::int64_t warmup_steps = 0;  ///< W: straight from 0 to the peak
  std::int64_t decay_steps = 0;   ///< wsd only: length of the final descent
  double final_fraction = 0;      ///< the end, as a fraction of the peak (constant: not used)
};

/// The learning rate of each update, counted from 0. With a warm-up, update 0 has lr 0 and update W the peak.
/// Then, with x going from 0 at the start of the descent to 1 at update S, and f = final_fraction:
///   cosine    peak · (f + (1 - f) · (1 + cos(πx)) / 2), descent from update W on
///   linear    peak · (f + (1 - f) · (1 - x)), descent from update W on
///   wsd       flat at the peak, then linear's descent over the last `decay_steps` updates
///   constant  flat at the peak
/// From update S on the lr stays at peak · f.
class Schedule {
 public:
  explicit Schedule(const ScheduleSettings& settings);
  double lr(std::int64_t update) const;
  /// One line for people: "cosine over 1000 steps: 100 of warm-up to 0.01, then down to 0.001".
  std::string describe() const;

 private:
  ScheduleSettings settings_;
  std::int64_t descent_from_ = 0;
};

}  // namespace compact
