#pragma once

namespace compact {

/// While it lives: the first SIGINT, SIGTERM, SIGHUP or SIGUSR2 asks for a stop after the step (or out of an
/// evaluation), a second one ends the process at once, but for SIGUSR2, which a launcher's helper may repeat;
/// SIGUSR1 asks for a checkpoint after the step. Made once, before anything slow begins: what is asked for
/// during the start is done at the first step.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;
  static bool stop_requested();
  /// True once for each SIGUSR1 seen.
  static bool take_checkpoint_request();
};

}  // namespace compact
