#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "compact/core/bf16.h"
#include "cuda_emulation/block_memory.h"
#include "cuda_emulation/faults.h"
#include "cuda_emulation/streams.h"
#include "src/dist/nccl/nccl_library.h"

/// The calls of NCCL that the backend makes, for ranks that are threads of the program. Calls of a group are
/// one piece of work on their stream, done when all ranks have come to it; sums are in rank order, those of
/// bf16 in fp32. What ranks disagree about is an error of their streams. Calls of a communicator that is not
/// blocking are in progress until they are asked about. What a sum leaves behind in memory that it may change
/// is poisoned.
namespace {

using compact::Bf16;
using compact::testing::RankFault;

enum class Kind { AllReduce, Reduce, ReduceScatter, Broadcast, AllGather };

struct Operation {
  Kind kind;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  int root;
};

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return 4;
    case ncclBfloat16:
      return 2;
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

/// What a rank has brought to a group of calls.
struct Offer {
  std::vector<Operation> operations;
  std::vector<std::vector<unsigned char>> inputs;
};
struct Round {
  std::vector<Offer> offers;  // by rank
  int came = 0, left = 0;
  std::string disagreement;
};
/// The ranks of an id.
struct Team {
  explicit Team(int size_) : size(size_) {}
  const int size;
  std::mutex mutex;
  int joined = 0;
  std::map<std::uint64_t, std::shared_ptr<Round>> rounds;  // that not all have left, by number
};
/// One of them; calls that are queued or recorded own it as well.
struct Member {
  std::shared_ptr<Team> team;
  int rank = 0;
  std::uint64_t begun = 0;  // groups, when the stream came to them
  bool blocking = true, connected = false;
  int in_progress = 0;  // questions that are answered so
  std::atomic<bool> aborted = false;
};

std::mutex teams_mutex;
std::map<std::uint64_t, std::weak_ptr<Team>> teams;
std::uint64_t ids = 0;

struct Grouped {
  Operation operation;
  std::shared_ptr<Member> member;
  cudaStream_t stream;
};
thread_local int group_depth = 0;
thread_local std::vector<Grouped> group;

std::size_t input_bytes(const Operation& o, const Member& m) {
  const std::size_t bytes = o.count * size_of(o.type);
  if (o.kind == Kind::ReduceScatter) return bytes * static_cast<std::size_t>(m.team->size);
  return o.kind == Kind::Broadcast && o.root != m.rank ? 0 : bytes;
}

std::string disagreement(const std::vector<Offer>& offers) {
  const std::vector<Operation>& first = offers[0].operations;
  for (std::size_t rank = 1; rank < offers.size(); ++rank) {
    const std::vector<Operation>& other = offers[rank].operations;
    const std::string who = "NCCL's stand-in: ranks 0 and " + std::to_string(rank) + " ";
    if (other.size() != first.size()) return who + "call for different numbers of operations";
    for (std::size_t i = 0; i < first.size(); ++i) {
      const Operation &a = first[i], &b = other[i];
      if (a.kind != b.kind) return who + "call for different operations";
      if (a.count != b.count)
        return who + "give different counts: " + std::to_string(a.count) + " and " + std::to_string(b.count);
      if (a.type != b.type) return who + "give different types";
      if (a.root != b.root) return who + "name different roots";
    }
  }
  return "";
}

template <typename T, typename Sum>
void add(const std::vector<Offer>& offers, std::size_t operation, std::size_t first, std::size_t count,
         T* to) {
  for (std::size_t i = 0; i < count; ++i) {
    Sum sum = 0;
    for (const Offer& offer : offers) {
      T x;
      std::memcpy(&x, offer.inputs[operation].data() + (first + i) * sizeof(T), sizeof(T));
      if constexpr (std::is_same_v<T, Bf16>)
        sum = &offer == &offers[0] ? compact::to_float(x) : sum + compact::to_float(x);
      else
        sum = &offer == &offers[0] ? x : sum + x;
    }
    if constexpr (std::is_same_v<T, Bf16>)
      compact::put(to[i], sum);
    else
      to[i] = sum;
  }
}

/// The sums of elements [first, first + count).
void add(const std::vector<Offer>& offers, std::size_t operation, std::size_t first, const Operation& o) {
  if (o.type == ncclFloat32)
    add<float, float>(offers, operation, first, o.count, static_cast<float*>(o.to));
  else if (o.type == ncclBfloat16)
    add<Bf16, float>(offers, operation, first, o.count, static_cast<Bf16*>(o.to));
  else
    add<double, double>(offers, operation, first, o.count, static_cast<double*>(o.to));
}

void finish(const Round& round, std::size_t i, const Member& m) {
  const Operation& o = round.offers[static_cast<std::size_t>(m.rank)].operations[i];
  const std::size_t bytes = o.count * size_of(o.type), rank = static_cast<std::size_t>(m.rank);
  auto* to = static_cast<unsigned char*>(o.to);
  const auto* from = static_cast<const unsigned char*>(o.from);
  const auto poison = [](void* memory, std::size_t size) {
    std::memset(memory, compact::cuda::emulation::kPoison, size);
  };
  switch (o.kind) {
    case Kind::AllReduce:
      return add(round.offers, i, 0, o);
    case Kind::Reduce:
      if (o.root == m.rank) return add(round.offers, i, 0, o);
      return poison(to, bytes);
    case Kind::ReduceScatter:
      if (to == from + rank * bytes) poison(to - rank * bytes, input_bytes(o, m));
      return add(round.offers, i, rank * o.count, o);
    case Kind::Broadcast: {
      const auto& input = round.offers[static_cast<std::size_t>(o.root)].inputs[i];
      std::memcpy(to, input.data(), bytes);
      return;
    }
    case Kind::AllGather:
      for (std::size_t k = 0; k < round.offers.size(); ++k)
        std::memcpy(to + k * bytes, round.offers[k].inputs[i].data(), bytes);
      return;
  }
}

/// A group of calls on its way: true when all ranks have come and the own part is done.
class Attempt {
 public:
  Attempt(std::shared_ptr<Member> member, std::vector<Operation> operations)
      : member_(std::move(member)), operations_(std::move(operations)) {}

  bool operator()() {
    Member& m = *member_;
    Team& team = *m.team;
    if (m.aborted) return true;
    if (!round_) {
      if (compact::testing::rank_fault(m.rank) == RankFault::Hangs) return false;
      Offer offer{operations_, {}};
      for (const Operation& o : operations_) {
        const auto* from = static_cast<const unsigned char*>(o.from);
        offer.inputs.emplace_back(from, from + input_bytes(o, m));
      }
      const std::lock_guard lock(team.mutex);
      number_ = m.begun++;
      std::shared_ptr<Round>& round = team.rounds[number_];
      if (!round) {
        round = std::make_shared<Round>();
        round->offers.resize(static_cast<std::size_t>(team.size));
      }
      round->offers[static_cast<std::size_t>(m.rank)] = std::move(offer);
      if (++round->came == team.size) round->disagreement = disagreement(round->offers);
      round_ = round;
    }
    {
      const std::lock_guard lock(team.mutex);
      if (round_->came < team.size) return false;
      if (++round_->left == team.size) team.rounds.erase(number_);
    }
    if (!round_->disagreement.empty()) throw std::runtime_error(round_->disagreement);
    for (std::size_t i = 0; i < operations_.size(); ++i) finish(*round_, i, m);
    return true;
  }

 private:
  std::shared_ptr<Member> member_;
  std::vector<Operation> operations_;
  std::shared_ptr<Round> round_;
  std::uint64_t number_ = 0;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Member> member;
};

namespace {

ncclResult_t call(const Operation& o, ncclComm_t comm, cudaStream_t stream) {
  if (comm == nullptr || stream == nullptr) return ncclInvalidArgument;
  const Member& m = *comm->member;
  {
    const std::lock_guard lock(m.team->mutex);
    if (m.in_progress > 0 || m.team->joined < m.team->size) return ncclInvalidUsage;
  }
  if (o.from == nullptr || o.to == nullptr || size_of(o.type) == 0) return ncclInvalidArgument;
  if (o.root < 0 || o.root >= m.team->size) return ncclInvalidArgument;
  const bool alone = group_depth == 0;
  if (alone) ncclGroupStart();
  group.push_back({o, comm->member, stream});
  return alone ? ncclGroupEnd() : ncclSuccess;
}

}  // namespace

namespace compact {
void load_nccl() {}
}  // namespace compact

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(teams_mutex);
  ++ids;
  *id = {};
  std::memcpy(id->internal, &ids, sizeof(ids));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (rank < 0 || rank >= size) return ncclInvalidArgument;
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  auto member = std::make_shared<Member>();
  member->rank = rank;
  member->blocking = config->blocking != 0;
  if (member->blocking) return ncclInvalidUsage;  // nothing here would wait
  {
    const std::lock_guard lock(teams_mutex);
    member->team = teams[number].lock();
    if (!member->team) teams[number] = member->team = std::make_shared<Team>(size);
  }
  if (member->team->size != size) return ncclInvalidArgument;
  if (compact::testing::rank_fault(rank) != RankFault::Hangs) {
    const std::lock_guard lock(member->team->mutex);
    ++member->team->joined;
  }
  *comm = new ncclComm{std::move(member)};
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  Member& m = *comm->member;
  const std::lock_guard lock(m.team->mutex);
  *result = ncclSuccess;
  if (m.team->joined < m.team->size) {
    *result = ncclInProgress;
  } else if (m.in_progress > 0) {
    --m.in_progress;
    *result = ncclInProgress;
  }
  if (compact::testing::rank_fault(m.rank) == RankFault::Reports) *result = ncclRemoteError;
  return ncclSuccess;
}
// NCCL waits here for all graphs that hold calls of the communicator.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  compact::cuda::emulation::finish_all();
  if (comm->member.use_count() != 1) {
    std::fputs("NCCL's stand-in: ncclCommDestroy, and a graph still holds calls of the communicator\n",
               stderr);
    std::abort();
  }
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->member->aborted = true;
  delete comm;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError       ? "remote process exited or there was a network error"
         : result == ncclInvalidArgument ? "invalid argument"
         : result == ncclInvalidUsage    ? "invalid usage"
                                         : "an error of NCCL's stand-in";
}
const char* ncclGetLastError(ncclComm_t) { return "no more is known"; }

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0 || group.empty()) return ncclSuccess;
  std::vector<Operation> operations;
  const Grouped first = group[0];
  for (const Grouped& g : group) {
    if (g.member != first.member || g.stream != first.stream) return ncclInvalidUsage;
    operations.push_back(g.operation);
  }
  group.clear();
  compact::cuda::emulation::enqueue_attempts(first.stream, Attempt(first.member, std::move(operations)));
  if (first.member->connected) return ncclSuccess;
  first.member->connected = true;  // as in NCCL, the first call of a kind takes longer
  first.member->in_progress = 3;
  return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  if (operation != ncclSum) return ncclInvalidArgument;
  return call({Kind::AllReduce, from, to, count, type, 0}, comm, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t stream) {
  if (operation != ncclSum) return ncclInvalidArgument;
  return call({Kind::Reduce, from, to, count, type, root}, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  if (operation != ncclSum) return ncclInvalidArgument;
  return call({Kind::ReduceScatter, from, to, count, type, 0}, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return call({Kind::Broadcast, from, to, count, type, root}, comm, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return call({Kind::AllGather, from, to, count, type, 0}, comm, stream);
}

}  // extern "C"
