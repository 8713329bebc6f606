#include "compact/core/error.h"
#include "compact/dist/communicator.h"
#include "compact/dist/launcher.h"

/// A build without MPI.
namespace compact {

std::unique_ptr<Communicator> open_communicator() {
  if (const int launched = launched_processes(); launched != 1)
    input_error(
        "a launcher has started {} processes, but this build of compact has no MPI, so each would make the "
        "same run; build it where MPI is (Debian: libopenmpi-dev), or start one process",
        launched > 1 ? std::to_string(launched) : "several");
  return make_local_communicator();
}

std::string mpi_version() { return "none"; }

}  // namespace compact
