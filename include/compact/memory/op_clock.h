#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace compact {

/// The kinds of work a step is made of, as `compact bench` reports them.
enum class Op {
  Gemm,
  Attention,
  Norm,
  Swiglu,
  Rope,
  Embedding,
  CrossEntropy,
  Elementwise,
  Projection,  ///< making P and applying it otherwise than by a matrix product
  Optimizer,
  GlobalNorm,
};
inline constexpr int kOps = 11;
std::string_view name_of(Op op);

/// What all calls of one kind took.
struct OpTime {
  double seconds = 0;  ///< without what ops called from inside took
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  ///< least traffic: every operand once, counted where it is read and where written
};

/// Time by kind of op. One op may call another: the inner one's time is not the outer one's.
class OpClock {
 public:
  const OpTime& of(Op op) const { return times_[static_cast<std::size_t>(op)]; }
  void reset() { times_ = {}; }

 private:
  friend class OpScope;
  using Clock = std::chrono::steady_clock;
  /// Credits the time since the last switch to what ran until now.
  void switch_to(int op);

  std::array<OpTime, kOps> times_{};
  int running_ = -1;  // no op
  Clock::time_point since_{};
};

/// An op's run, from its construction to its end. Does nothing without a clock.
class OpScope {
 public:
  OpScope(OpClock* clock, Op op, std::int64_t bytes) : clock_(clock) {
    if (clock_ != nullptr) begin(op, bytes);
  }
  ~OpScope() {
    if (clock_ != nullptr) clock_->switch_to(outer_);
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  void begin(Op op, std::int64_t bytes);
  OpClock* clock_;
  int outer_ = -1;
};

}  // namespace compact
