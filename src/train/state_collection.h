#pragma once
#include <vector>

#include "compact/dist/communicator.h"
#include "compact/io/safetensors.h"
#include "compact/memory/host_access.h"

namespace compact {

/// Brings optimizer states of which each rank has some rows to rank 0, one tensor at a time, while rank 0
/// writes a checkpoint of them. Rank 0 calls `whole` for each of them in the order of Optimizer::states and
/// `end` afterwards, also after a failure; the others `serve`.
class StateCollection {
 public:
  StateCollection(Communicator& communicator, cuda::Queue* queue)
      : communicator_(communicator), host_(queue) {}

  /// All elements of `part`; valid until the next call.
  const void* whole(const NamedTensor& part);
  /// Sends the parts of this rank as rank 0 asks for them, until it ends.
  void serve(const std::vector<NamedTensor>& parts);
  void end();

 private:
  /// True on all ranks where rank 0 says so: there is one more tensor to collect.
  bool one_more(bool mine);
  std::span<const std::byte> bytes_of(const NamedTensor& part);

  Communicator& communicator_;
  HostAccess host_;
  std::vector<std::byte> whole_;
};

}  // namespace compact
