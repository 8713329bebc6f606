#pragma once
#include <string>

#include "compact/data/token_shard.h"
#include "compact/dist/communicator.h"
#include "compact/model/config.h"
#include "compact/train/run_config.h"

/// What the ranks of a run must have in common. All calls are collective and return at once on one rank.
namespace compact {

/// Throws InputError, on rank 0 (SaidElsewhere elsewhere), where ranks have another version of the program,
/// another config (but for threads and cuda.device), model or content of shards than rank 0. Of shards beyond
/// 1 GiB in all, samples are compared. Unless the optimizer is sharded, so that each weight is computed in
/// one place, the CPUs must be alike too: another one rounds otherwise, and the ranks' weights would drift
/// apart.
void check_ranks_agree(Communicator& communicator, const RunConfig& run, const std::string& run_file,
                       const ModelConfig& model, const Dataset& train, const Dataset& val);

/// Throws InputError where ranks have found other checkpoints than rank 0 to resume from.
void require_same_checkpoint(Communicator& communicator, const std::string& folder,
                             const std::string& out_dir);

/// Throws RunError where ranks' weights differ (WeightCheck::fingerprint).
void require_same_weights(Communicator& communicator, const std::string& fingerprint, std::int64_t step);

/// The ranks of this machine that may run on any of the CPUs of this one, itself included: those that its
/// threads share them with. Says on stderr, on rank 0, where the launcher lets its machine's ranks use only
/// part of the CPUs that it has itself.
int ranks_on_my_cpus(Communicator& communicator);

}  // namespace compact
