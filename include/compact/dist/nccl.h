#pragma once
#include <memory>
#include <string>

#include "compact/dist/communicator.h"

namespace compact {

namespace cuda {
class Queue;
}

/// The ranks of `host`, two or more, each with a CUDA device of its own (compact/train/cuda_device.h), whose
/// tensors NCCL sends from card to card on the side stream of the rank's queue; everything else goes through
/// `host`.
///
/// `patience` becomes that of the host too, as by set_patience; NCCL's start has it already.
///
/// Collective, and outside of `together`, which it does itself. Throws InputError on all ranks where one of
/// them has a build without NCCL, or finds no libnccl.so.2. Host and queue outlive what is returned, which
/// must be destroyed by the thread that uses the queue; a step that calls it is forgotten by the queue then.
///
/// Where NCCL fails, a card waits for another one for longer than the patience (which counts all of a wait of
/// the host for its card, computing included), or the run is to stop and the others do not come, it ends the
/// run by `host.fail`: where that throws, the error comes out of the wait.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, cuda::Queue& queue,
                                                     Patience patience = {});

/// True in a build with NCCL (or its stand-in).
bool nccl_is_built();

/// "NCCL 2.28.9", which this build was made for, or "none".
std::string nccl_version();

}  // namespace compact
