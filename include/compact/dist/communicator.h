#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compact/memory/context.h"

namespace compact {

/// Where a rank stands among the ranks of a run.
struct RankPlace {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  ///< among the ranks of the same machine
};

/// How long a rank waits for the others.
struct Patience {
  double seconds = 600;  ///< then the run ends with the names of those that are missing
  /// True once this rank was told to stop: it then waits at most `hurried_seconds`, or three times its
  /// longest wait so far.
  std::function<bool()> hurried = {};
  double hurried_seconds = 15;
};

/// What the ranks of a run say to each other. Every call is collective: all ranks make it, in the same order.
///
/// Calls on tensors (reduce, gather, all_reduce) are queued and done beside what the rank computes next;
/// their results are there after `wait`, and until then nobody may touch the tensors. Which rows of a tensor
/// belong to which rank is said by compact/dist/rows.h. Tensors are contiguous, of F32, BF16 or F64. Sums of
/// host memory are added in rank order, BF16 in fp32 and rounded once; those of a CUDA device in an order
/// that NCCL fixes for a machine and a number of ranks. In a plan nothing is sent and everything counted.
///
/// A rank that misses the others for longer than its patience ends the run (`fail`).
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual RankPlace place() const = 0;
  int rank() const { return place().rank; }
  int size() const { return place().size; }

  // ---- on the host, done when they return ------------------------------------------------------------

  /// values[i] becomes its sum over the ranks, added in rank order.
  virtual void sum(std::span<double> values) = 0;
  /// What each rank gave, in rank order, on every rank.
  virtual std::vector<std::string> gather_texts(const std::string& text) = 0;
  /// On rank 0 the bytes that all ranks gave, one after another in rank order; elsewhere nothing.
  virtual std::vector<std::byte> collect(std::span<const std::byte> bytes) = 0;

  // ---- on tensors, queued -----------------------------------------------------------------------------

  /// Takes the memory for what is received, once, before the other calls: workspace of up to `bucket_bytes`
  /// from the persistent part of the arena; nothing on one rank or on a CUDA device.
  virtual void reserve(Context& context, std::int64_t bucket_bytes) = 0;
  /// Each tensor becomes its sum over the ranks.
  virtual void all_reduce(Context& context, std::span<const Tensor> tensors) = 0;
  /// Of each tensor the rank's own rows become the sum over the ranks; the others hold no meaning afterwards.
  virtual void reduce(Context& context, std::span<const Tensor> tensors) = 0;
  /// The own rows of each rank go to all others.
  virtual void gather(Context& context, std::span<const Tensor> tensors) = 0;
  /// Results of the calls on tensors so far are there for what the context does next.
  virtual void wait(Context& context) = 0;

  /// Bytes of the tensors given to reduce and gather so far, and twice those given to all_reduce.
  std::int64_t tensor_bytes() const { return sent_; }
  /// What a rank sends for them, on average over the ranks: to reduce or to gather B bytes takes
  /// B · (size - 1) / size, the least there is.
  double wire_bytes(std::int64_t tensors) const {
    return static_cast<double>(tensors) * (size() - 1) / size();
  }
  double wire_bytes() const { return wire_bytes(sent_); }

  /// Seconds that the rank has stood still for the others so far, on the host.
  double waited_seconds() const { return waited_; }

  virtual void set_patience(Patience patience) = 0;
  /// Ends the run on all ranks because of something that only this rank knows, with `text` on the screen once
  /// and the exit code `code`. Between processes it does not return; where ranks are threads it throws
  /// here, and SaidElsewhere in every other rank's next call.
  [[noreturn]] virtual void fail(int code, const std::string& text) = 0;

 protected:
  std::int64_t sent_ = 0;  // tensor_bytes
  double waited_ = 0;      // seconds
};

/// One process, one rank: every call returns at once.
std::unique_ptr<Communicator> make_local_communicator();

/// Rank `rank` of `size` in a plan: nothing is sent.
std::unique_ptr<Communicator> make_plan_communicator(int rank, int size);

/// `size` ranks for threads of this process, one each. A rank's communicator is used by one thread.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size);

/// The ranks that a launcher (mpirun, srun) has started: starts MPI. Where the environment names no launcher,
/// or one rank alone, that of make_local_communicator, and MPI is not touched. Throws InputError where a
/// launcher has started several ranks and this build has no MPI.
std::unique_ptr<Communicator> open_communicator();

/// "MPI 3.1, Open MPI 4.1.4", or "none" in a build without it.
std::string mpi_version();

/// The failure of a run that all ranks know of; rank 0 throws it.
template <typename Error>
class KnownToAll : public Error {
 public:
  using Error::Error;
};

/// Runs `work` on every rank. Where it throws InputError or RunError on any of them, all ranks throw: rank 0
/// KnownToAll with what the first of the gravest kind (InputError) says, and that rank's number where others
/// did not fail the same way; the others SaidElsewhere. On one rank `work` is just run.
void together(Communicator& communicator, const std::function<void()>& work);

/// Runs `work`, the whole part of this rank. What it throws and not all ranks know of (everything but what
/// `together` throws) ends all of them by `fail`; on one rank nothing is changed.
void end_together(Communicator& communicator, const std::function<void()>& work);

/// The failure of a run that another rank tells of; ends the process with `code` and without a word.
class SaidElsewhere : public std::exception {
 public:
  explicit SaidElsewhere(int code_) : code(code_) {}
  const char* what() const noexcept override { return "another rank tells of the failure"; }
  int code;
};

}  // namespace compact
