#include "cuda_emulation/faults.h"
#include "cuda_emulation/fiber_order.h"

namespace compact::testing {

void set_fiber_order(std::uint32_t) {}
bool is_emulated() { return false; }
void fail_launch(int) {}
void set_machine(const EmulatedMachine&) {}
void set_side_first(bool) {}
void set_rank_fault(int, RankFault) {}

}  // namespace compact::testing
