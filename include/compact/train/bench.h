#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compact/cuda/device.h"
#include "compact/memory/context.h"
#include "compact/model/config.h"
#include "compact/train/run_config.h"

namespace compact {

/// One matrix product, timed alone on operands of its own.
struct GemmBench {
  GemmCall call;
  std::int64_t calls = 0;  ///< in a step
  double seconds = 0;      ///< median of one call
  double flops() const {
    return 2.0 * static_cast<double>(call.M) * static_cast<double>(call.K) * static_cast<double>(call.N);
  }
};

/// What one kind of op takes in a step.
struct OpBench {
  Op op = Op::Gemm;
  OpTime time;
  std::map<DType, double> flops;  ///< by type of the operands; empty where memory alone counts
};

/// A step: the whole, its ops, and the matrix products it is made of. Times in seconds. On a CUDA device the
/// whole is timed as runs take it, and its ops in other steps, in which each launch is waited for.
struct StepBench {
  RunConfig run;
  std::int64_t parameters = 0;
  std::int64_t tokens = 0;     ///< in a step
  double step_seconds = 0;     ///< median of the steps
  double split_seconds = 0;    ///< of the step that the ops are of: on the CPU the same
  std::vector<OpBench> ops;    ///< of the median step itself, longest first
  double outside_seconds = 0;  ///< of that step: outside of all ops
  std::int64_t step_flops = 0;
  std::int64_t peak_bytes = 0;           ///< of the arena
  std::int64_t resident_peak_bytes = 0;  ///< of the process, after its steps
  std::int64_t device_bytes = 0;         ///< of a CUDA device: arena, libraries and graph, after its steps
  std::int64_t graphs_recorded = 0;
  std::vector<GemmBench> gemms;  ///< longest first; empty where only steps were asked for
  double gemm_seconds = 0;       ///< median of their sums
};

/// What a machine can do. In operations and bytes a second.
struct MachineBench {
  std::string cpu;
  int threads = 0;
  std::string card;                             ///< the CUDA device of the steps; empty: the CPU
  std::optional<cuda::DevicePeaks> data_sheet;  ///< its
  double bandwidth = 0;
  std::map<DType, double> gemm_peak;  ///< of the types that the steps and shapes use
};

struct Bench {
  MachineBench machine;
  std::vector<GemmBench> shapes;  ///< products of general interest; empty for a given run
  std::vector<StepBench> steps;
};

/// Least time of an op: for its traffic at the memory's bandwidth or for its operations at the GEMM peak of
/// their type, whichever is longer.
double floor_seconds(const OpBench& op, const MachineBench& machine);

struct BenchOptions {
  int repeats = 5;
  bool steps_only = false;     ///< no product is timed alone, so that the process takes what a run takes
  std::string device = "cpu";  ///< of bench_machine: cpu, cuda
};

/// Times `repeats` steps of `run` on random tokens and, interleaved with them, every matrix product of such a
/// step by itself on operands of its own. Throws RunError where memory does not suffice.
Bench bench_run(const RunConfig& run, const ModelConfig& model, const BenchOptions& options);

/// The same without a run file: matrix products of several shapes and a full-rank step of LLaMA-60M, 8 x 256
/// tokens (32 x 256 on a CUDA device), preset lean, each in fp32 and in bf16.
Bench bench_machine(const BenchOptions& options);

std::string bench_text(const Bench& bench);
std::string bench_json(const Bench& bench);

}  // namespace compact
