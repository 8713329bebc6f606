#pragma once

namespace compact::testing {

/// Lets the launch or copy that is queued as `number`-th from now (1: the next one) fail when the device
/// comes to it, as a kernel does that touches memory which is not its own. For the calling thread, and in a
/// program with the emulation only.
void fail_launch(int number);

/// From now on work on other streams is done before that of the stream which the host waits for, as far as
/// nothing holds it back; otherwise it is done when something waits for it. Whatever does not wait where it
/// has to gives other results in one of the two.
void set_side_first(bool first);

/// What is wrong with a rank in the stand-in of NCCL.
enum class RankFault {
  None,
  Hangs,   ///< its calls never begin
  Reports  ///< its communicator reports an asynchronous error
};
/// For all communicators from now on. Ranks without a fault are not told.
void set_rank_fault(int rank, RankFault fault);
RankFault rank_fault(int rank);

/// What the emulated driver says of the machine from now on.
struct EmulatedMachine {
  int driver;                ///< CUDA version, 1000 · major + 10 · minor; 0: no driver
  int devices = 1;           ///< device i has the bus id 0000:(i + 16 in hex):00.0
  int major = 9, minor = 0;  ///< compute capability
  bool has_code = true;      ///< the build has code for it
};
void set_machine(const EmulatedMachine& machine);

}  // namespace compact::testing
