#pragma once
#include <map>
#include <vector>

#include "compact/train/bench.h"

/// Matrix products timed alone, for `compact bench`.
namespace compact {

/// What a step multiplies.
struct StepProducts {
  std::map<GemmCall, std::int64_t> calls;  ///< with their number: micro-batches, and the update
  double projection_flops = 0;             ///< in kernels of the projections' own
  double optimizer_flops = 0;              ///< in kernels of the update's own
};
StepProducts products_of(const RunConfig& run, const ModelConfig& model);

/// Median seconds of a call on operands of its own, after one that makes the primitive. On the device of
/// `queue`, or on the CPU where it is null.
double time_product(const GemmCall& call, int repeats, cuda::Queue* queue);

/// Products of general interest, in `type`: squares, and what a linear layer and a head are made of.
std::vector<GemmBench> bench_shapes(DType type, int repeats, cuda::Queue* queue);

}  // namespace compact
