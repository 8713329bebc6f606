#pragma once
#include <algorithm>
#include <chrono>

#include "compact/dist/communicator.h"

namespace compact {

/// One wait for other ranks, from its construction to its end.
class Waiting {
 public:
  /// `longest`: seconds of the longest wait so far, kept up to date.
  Waiting(const Patience& patience, double& longest) : patience_(patience), longest_(longest) {}
  ~Waiting() { longest_ = std::max(longest_, since(start_)); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// True when the patience is at its end.
  bool too_long() {
    if (since(start_) > patience_.seconds) return true;
    if (!patience_.hurried || !patience_.hurried()) return false;
    // Whoever sent the signal waits for an end; a rank that is only slow gets as long as ever before.
    if (!hurried_) hurried_since_ = Clock::now();
    hurried_ = true;
    return since(hurried_since_) > std::max(patience_.hurried_seconds, 3 * longest_);
  }
  double seconds() const { return since(start_); }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  const Patience& patience_;
  double& longest_;
  Clock::time_point start_ = Clock::now(), hurried_since_{};
  bool hurried_ = false;
};

}  // namespace compact
