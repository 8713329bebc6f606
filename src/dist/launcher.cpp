#include "compact/dist/launcher.h"

#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

namespace compact {

namespace {

// The value of the first of these variables that is set; null where none is.
const char* first_set(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  return nullptr;
}

// Of Open MPI; MPICH, Intel MPI and srun --mpi=pmi2; srun --mpi=pmix.
const char* rank_text() { return first_set({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}); }

}  // namespace

int launched_processes() {
  if (const char* size = first_set({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}))
    return std::atoi(size);
  return rank_text() != nullptr ? 0 : 1;
}

bool under_launcher() { return launched_processes() != 1 || rank_text() != nullptr; }

int launched_rank() { return rank_text() != nullptr ? std::atoi(rank_text()) : 0; }

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace compact
