#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "compact/cuda/queue.h"
#include "compact/optim/schedule.h"
#include "compact/train/engine.h"
#include "compact/train/plan.h"
#include "compact/train/run_state.h"
#include "run_report.h"

namespace compact {

/// What a run is made of, once everything has been checked.
struct RunParts {
  RunConfig run;
  ModelConfig model;
  std::shared_ptr<const Windows> train, val;  ///< val may be null: no evaluation
  RunPlan plan;
  std::optional<Resumed> resumed;
  int threads = 1;
  std::int64_t rss_at_start = 0;
  std::unique_ptr<cuda::Queue> queue;   ///< null on the CPU
  std::unique_ptr<Communicator> cards;  ///< between the cards of several ranks; else null
};

/// One rank's part of a training run; owns what lives as long as the run.
class Run {
 public:
  /// Weights and states are there afterwards: fresh ones, those of init_from or of the checkpoint. Throws
  /// InputError where the ranks do not start from the same.
  Run(RunParts parts, Communicator& communicator);
  void execute();

 private:
  /// What all ranks have to say before a step.
  struct Heard {
    bool stop = false, checkpoint = false;
  };

  Schedule make_schedule() const;
  void take_weights();
  Heard hear_all(Loader& loader, StepBatch& batch);
  void count(const StepBatch& batch, const StepResult& result);
  void tell_step(const StepResult& result, double lr, double seconds);
  void evaluate_now();
  void give_up();
  void checkpoint();
  void save();
  void end(const Loader& loader, double seconds);
  bool due(const Period& period) const;
  std::optional<double> peak_or_none(double seen) const;
  std::string what_is_left() const;

  RunParts parts_;
  const RunConfig& run_;
  Communicator& communicator_;
  std::string fingerprint_;
  std::optional<cuda::DeviceInfo> device_;  // before the arena was taken
  Arena arena_;
  Engine engine_;
  Schedule schedule_;
  RunState state_;
  std::unique_ptr<RunReport> report_;  // rank 0's
  std::int64_t steps_here_ = 0;        // steps made by this process
  std::int64_t saved_step_ = -1;       // step of the newest checkpoint
  std::int64_t sent_ = 0;              // the communicator's bytes before this step
  double waited_ = 0;                  // and its seconds
  std::optional<double> gemm_peak_;    // operations a second; measured after the first step
};

}  // namespace compact
