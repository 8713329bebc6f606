#pragma once

namespace compact {

/// Processes that a launcher of MPI programs (mpirun, srun) has started with this one, by its environment; 0
/// where there is a launcher that does not say how many, 1 where there is none.
int launched_processes();

}  // namespace compact
