#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compact/memory/context.h"
#include "compact/model/config.h"
#include "compact/train/run_config.h"

namespace compact {

/// What a run needs, found by running its step on the plan device.
struct RunPlan {
  std::int64_t peak = 0;         ///< bytes of the arena, exactly
  CategoryBytes at_peak{};       ///< by category at that moment
  std::vector<Allocation> live;  ///< tensors live at that moment
  FlopCount micro_batch;         ///< operations of one forward and backward pass, recomputation included
  FlopCount update;              ///< operations of one optimizer update
  std::int64_t micro_batch_bytes = 0;  ///< that ops read and write in such a pass, each operand once an op
  std::int64_t update_bytes = 0;       ///< and in such an update
  std::int64_t micro_batches = 0;      ///< in a step
  std::int64_t parameters = 0;
  std::int64_t gradient_elements = 0;
  int ranks = 1;          ///< that share the steps; the plan is that of one of them
  double wire_bytes = 0;  ///< that a rank sends in a step, on average over the ranks
  /// Operations of a matrix product that take the device as long as the transfer of a byte: 5 to 20 on
  /// today's CPUs; on data-centre cards 150 to 290 in bf16 by their data sheets, in fp32, without tensor
  /// cores, 12 to 20.
  double ops_per_byte = 8;

  /// Operations of a whole step.
  std::int64_t step_flops() const {
    return micro_batches * (micro_batch.gemm + micro_batch.attention) + update.gemm;
  }
  /// Bytes that the ops of a whole step read and write.
  std::int64_t step_bytes() const { return micro_batches * micro_batch_bytes + update_bytes; }
  /// What makes one plan slower than another, in operations.
  double cost() const {
    return static_cast<double>(step_flops()) + ops_per_byte * static_cast<double>(step_bytes());
  }
};

/// The plan of rank `rank` of `ranks`. The last rank needs most, where ranks differ (compact/dist/rows.h).
RunPlan plan_run(const RunConfig& run, const ModelConfig& model, int ranks, int rank);
inline RunPlan plan_run(const RunConfig& run, const ModelConfig& model, int ranks = 1) {
  return plan_run(run, model, ranks, ranks - 1);
}

/// A variant of a run, and whether it fits.
struct FittingRun {
  RunConfig run;
  RunPlan plan;
  bool fits = false;
};

/// The fastest variant of `run` on `ranks` ranks (preset, micro-batch, logits chunk) whose peak is at most
/// `bytes` on each of them: the least cost(). Where none fits, the variant that needs least.
FittingRun fit_run(const RunConfig& run, const ModelConfig& model, std::int64_t bytes, int ranks = 1);

/// "8e9", "8GiB", "8 GB", "512M" -> bytes. Throws InputError that names `option`.
std::int64_t parse_bytes(const std::string& text, const std::string& option);

/// The plan for people: bytes by category, the largest tensors at the peak, operations, and the alternatives.
std::string plan_text(const RunConfig& run, const ModelConfig& model, const RunPlan& plan);
/// The plan as one JSON value.
std::string plan_json(const RunConfig& run, const ModelConfig& model, const RunPlan& plan);

}  // namespace compact
