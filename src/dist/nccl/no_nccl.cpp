#include "compact/core/error.h"
#include "compact/dist/nccl.h"

/// Several cards in a build without NCCL.
namespace compact {

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, cuda::Queue&,
                                                     Patience) {
  if (host->size() == 1) return host;
  input_error(
      "{} ranks with device \"cuda\": this build of compact has no NCCL; build it where nccl.h is "
      "(docs/cuda.md), or start one rank",
      host->size());
}

bool nccl_is_built() { return false; }
std::string nccl_version() { return "none"; }

}  // namespace compact
