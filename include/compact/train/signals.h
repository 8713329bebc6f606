#pragma once

namespace compact {

/// While it lives: the first SIGINT, SIGTERM, SIGHUP or SIGUSR2 asks for a stop after the step (or out of an
/// evaluation), a second one ends the process at once; SIGUSR1 asks for a checkpoint after the step.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;
  static bool stop_requested();
  /// True once for each SIGUSR1 seen.
  bool take_checkpoint_request();
};

}  // namespace compact
