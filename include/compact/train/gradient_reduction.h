#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "compact/dist/communicator.h"
#include "compact/nn/parameter.h"

namespace compact {

/// Sends tensors to the other ranks in buckets while the rank goes on computing: gradients as backward
/// completes them, and weights as they are updated.
class GradientReduction {
 public:
  /// `sharded`: a rank needs the sums of its own rows alone. A bucket is sent once it holds `bucket_bytes`.
  GradientReduction(Communicator& communicator, bool sharded, std::int64_t bucket_bytes)
      : communicator_(communicator), sharded_(sharded), bucket_bytes_(bucket_bytes) {}

  /// The gradients of `parameters` are complete on this rank.
  void reduce(Context& context, std::span<const Parameter> parameters);
  /// The own rows of the weight of `parameter` are those of the next step.
  void gather(Context& context, const Parameter& parameter);
  /// Sends what has not been sent and waits for the other ranks.
  void finish(Context& context);

 private:
  enum class Way { Reduce, Gather };
  void add(Context& context, const Tensor& tensor, Way way);
  void send(Context& context);

  Communicator& communicator_;
  bool sharded_;
  std::int64_t bucket_bytes_;
  std::vector<Tensor> bucket_;  // all go the same way
  Way way_ = Way::Reduce;
  std::int64_t held_ = 0;  // bytes of the bucket
};

}  // namespace compact
