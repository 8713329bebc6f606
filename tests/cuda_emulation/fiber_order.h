#pragma once
#include <cstdint>

namespace compact::testing {

/// The order in which the emulated threads of a block take turns from now on: 0 by number, else a random one
/// drawn from the seed anew at every turn. A kernel whose result depends on it lacks a barrier. Does nothing
/// in a program without the emulation.
void set_fiber_order(std::uint32_t seed);
/// True in a program with the emulation.
bool is_emulated();

}  // namespace compact::testing
