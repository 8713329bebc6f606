#include "compact/core/error.h"
#include "compact/dist/nccl.h"

/// Several cards in a build without NCCL.
namespace compact {

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, cuda::Queue&, Patience) {
  if (host.rank() != 0) throw SaidElsewhere(2);  // every rank is of this build
  throw KnownToAll<InputError>(fmt::format(
      "{} ranks with device \"cuda\": this build of compact has no NCCL; build it where nccl.h is "
      "(docs/cuda.md), or start one rank",
      host.size()));
}

bool nccl_is_built() { return false; }
std::string nccl_version() { return "none"; }

}  // namespace compact
