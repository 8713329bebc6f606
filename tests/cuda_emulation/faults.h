#pragma once

namespace compact::testing {

/// Lets the launch or copy that is queued as `number`-th from now (1: the next one) fail when the device
/// comes to it, as a kernel does that touches memory which is not its own. In a program with the emulation
/// only.
void fail_launch(int number);

/// What the emulated driver says of the machine from now on.
struct EmulatedMachine {
  int driver;  ///< CUDA version, 1000 · major + 10 · minor; 0: no driver
  int devices = 1;
  int major = 9, minor = 0;  ///< compute capability
  bool has_code = true;      ///< the build has code for it
};
void set_machine(const EmulatedMachine& machine);

}  // namespace compact::testing
