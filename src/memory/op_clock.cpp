#include "compact/memory/op_clock.h"

namespace compact {

std::string_view name_of(Op op) {
  static constexpr std::string_view names[kOps] = {
      "matrix products", "attention",   "norms",       "SwiGLU",    "rotations",  "embedding",
      "cross-entropy",   "elementwise", "projections", "optimizer", "global norm"};
  return names[static_cast<std::size_t>(op)];
}

void OpClock::switch_to(int op) {
  const auto now = Clock::now();
  if (running_ >= 0)
    times_[static_cast<std::size_t>(running_)].seconds += std::chrono::duration<double>(now - since_).count();
  running_ = op;
  since_ = now;
}

void OpScope::begin(Op op, std::int64_t bytes) {
  outer_ = clock_->running_;
  OpTime& time = clock_->times_[static_cast<std::size_t>(op)];
  ++time.calls;
  time.bytes += bytes;
  clock_->switch_to(static_cast<int>(op));
}

}  // namespace compact
