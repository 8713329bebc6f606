#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "compact/cuda/device.h"
#include "compact/memory/ledger.h"
#include "compact/optim/schedule.h"
#include "compact/train/engine.h"
#include "compact/train/evaluator.h"
#include "compact/train/metrics.h"
#include "compact/train/plan.h"
#include "compact/train/progress.h"
#include "compact/train/run_state.h"

namespace compact {

/// What does not change in a run, as its report tells it.
struct RunFacts {
  RunConfig run;
  RunPlan plan;
  RankPlace place;
  int threads = 1;
  std::optional<cuda::DeviceInfo> device;  ///< empty on the CPU
};

/// One step, as it is told.
struct StepReport {
  StepResult result;
  double lr = 0, seconds = 0;
  double wire_bytes = 0;            ///< sent by a rank, on average
  double waited = 0;                ///< seconds that this rank stood still for the others
  std::optional<double> gemm_peak;  ///< operations a second; empty until known
};

/// How a run ended.
struct EndReport {
  bool finished = false;
  double seconds = 0, loader_waited = 0;
  std::int64_t resident_over_start = 0;
  std::optional<std::int64_t> device_over_start;  ///< empty on the CPU
};

/// metrics.jsonl, run.log, config.resolved.json and the screen: what rank 0 tells of a run. The other ranks
/// make none.
class RunReport {
 public:
  /// Opens the files in the run's folder; events after `first_step` go from those of a resumed run.
  RunReport(RunFacts facts, std::int64_t first_step, bool resumed);

  void say(const std::string& line) { progress_.say(line); }
  void start(const RunState& state, const std::optional<Resumed>& resumed, const Schedule& schedule);
  void step(const RunState& state, const StepReport& step, const Ledger& ledger);
  void evaluation(std::int64_t step, const Evaluation& evaluation, double seconds);
  void checkpoint(std::int64_t step, const std::string& folder, double seconds);
  void end(const RunState& state, const EndReport& end, const Ledger& ledger);

 private:
  RunFacts facts_;
  Progress progress_;
  MetricsFile metrics_;
  double step_seconds_ = 0;      // running mean, for the remaining time
  std::int64_t steps_here_ = 0;  // steps told of
  std::optional<double> last_val_loss_;
};

}  // namespace compact
