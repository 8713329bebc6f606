#pragma once
#include <memory>
#include <span>
#include <string>

#include "compact/memory/context.h"

namespace compact {

/// What the ranks of a run say to each other. All calls are collective and in the same order on every rank.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Ranks on this machine (threads are shared out among them).
  virtual int local_size() const = 0;
  /// x becomes the sum over the ranks, added in rank order.
  virtual void all_reduce_sum(Context& context, const Tensor& x) = 0;
  virtual void all_reduce_sum(std::span<double> values) = 0;
  virtual void barrier() = 0;
};

/// One process, one rank: every call returns at once.
std::unique_ptr<Communicator> make_local_communicator();

}  // namespace compact
