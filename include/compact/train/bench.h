#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compact/memory/context.h"
#include "compact/model/config.h"
#include "compact/train/run_config.h"

namespace compact {

/// One matrix product of a step, timed alone.
struct GemmBench {
  GemmCall call;
  std::int64_t calls = 0;  ///< in a step
  double seconds = 0;      ///< median of one call
};

/// A step and the matrix products it is made of. Times are medians in seconds.
struct StepBench {
  double step_seconds = 0;
  double gemm_seconds = 0;  ///< sum over the products below
  double gemm_peak = 0;     ///< operations a second of the machine
  std::int64_t step_flops = 0;
  std::int64_t tokens = 0;  ///< in a step
  std::int64_t peak_bytes = 0;
  int threads = 0;
  std::vector<GemmBench> gemms;
};

/// Times `repeats` steps of `run` on random tokens and, interleaved with them, every matrix product of such a
/// step by itself on its own operands.
StepBench bench_step(const RunConfig& run, const ModelConfig& model, int repeats);

std::string bench_text(const StepBench& bench);
std::string bench_json(const StepBench& bench);

}  // namespace compact
