#pragma once
#include <string>

namespace compact {

/// Processes that a launcher of MPI programs (mpirun, srun) has started with this one, by its environment; 0
/// where there is a launcher that does not say how many, 1 where there is none.
int launched_processes();

/// True where the environment is that of a launcher, of one process too.
bool under_launcher();

/// The number of this process among them, before MPI is asked; 0 where there is no launcher.
int launched_rank();

/// The name of this machine.
std::string host_name();

}  // namespace compact
