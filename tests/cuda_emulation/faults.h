#pragma once

namespace compact::testing {

/// Lets the launch or copy that is queued as `number`-th from now (1: the next one) fail when the device
/// comes to it, as a kernel does that touches memory which is not its own. In a program with the emulation
/// only.
void fail_launch(int number);

}  // namespace compact::testing
