#pragma once
#include <map>
#include <vector>

#include "compact/train/bench.h"

/// Matrix products timed alone, for `compact bench`.
namespace compact {

/// The products of one step with their number: those of a micro-batch as often as it runs, and the update's.
std::map<GemmCall, std::int64_t> products_of(const RunConfig& run, const ModelConfig& model);

/// Median seconds of a call on operands of its own, after one that makes the primitive.
double time_product(const GemmCall& call, int repeats);

/// Products of general interest, in `type`: squares, and what a linear layer and a head are made of.
std::vector<GemmBench> bench_shapes(DType type, int repeats);

}  // namespace compact
