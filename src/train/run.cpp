#include "run.h"

#include <chrono>
#include <set>
#include <utility>

#include "compact/core/error.h"
#include "compact/io/checkpoint.h"
#include "compact/train/evaluator.h"
#include "compact/train/machine.h"
#include "compact/train/signals.h"
#include "rank_checks.h"
#include "state_collection.h"

namespace compact {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Run::Run(RunParts parts, Communicator& communicator)
    : parts_(std::move(parts)),
      run_(parts_.run),
      communicator_(communicator),
      fingerprint_(data_fingerprint(parts_.train->dataset())),
      device_(parts_.queue ? std::optional(cuda::device_info(parts_.queue->options().device)) : std::nullopt),
      arena_(parts_.queue ? Device::Cuda : Device::Cpu, parts_.plan.peak),
      engine_(arena_, run_, parts_.model, communicator, parts_.queue.get()),
      schedule_(make_schedule()) {
  together(communicator_, [this] { take_weights(); });
  if (communicator_.rank() == 0)
    report_ = std::make_unique<RunReport>(
        RunFacts{run_, parts_.plan, communicator_.place(), parts_.threads, device_}, state_.step,
        parts_.resumed.has_value());
}

void Run::take_weights() {
  if (parts_.resumed) {
    restore(engine_, *parts_.resumed);
    state_ = parts_.resumed->state;
  } else if (!run_.init_from.empty()) {
    engine_.load(run_.init_from);
  } else {
    engine_.initialize();
  }
}

Schedule Run::make_schedule() const {
  const auto steps = [&](const Period& p) { return p.steps(run_.train.steps, run_.batch.tokens_per_step); };
  return Schedule({run_.schedule.name, run_.optimizer.lr, run_.train.steps, steps(run_.schedule.warmup),
                   steps(run_.schedule.decay), run_.schedule.final_fraction});
}

std::string Run::what_is_left() const {
  if (saved_step_ < 0) return "there is no checkpoint yet";
  return fmt::format("the newest checkpoint is that of step {}, from before the steps that were skipped",
                     saved_step_);
}

bool Run::due(const Period& period) const {
  const std::int64_t every = period.steps(run_.train.steps, run_.batch.tokens_per_step);
  return every > 0 && state_.step % every == 0;
}

// A card that is full has no room for a measurement: then the run goes on without.
std::optional<double> Run::peak_or_none(double seen) const {
  try {
    return reference_peak(llama_options(run_).types.activation, seen, parts_.queue.get());
  } catch (const RunError&) {
    return std::nullopt;
  }
}

void Run::give_up() {
  together(communicator_, [&] {
    run_error(
        "step {}: the loss or the gradient was not finite in {} steps in a row (train.max_skipped is {}); no "
        "weight was changed by them. A smaller optimizer.lr, more warmup or optimizer.clip_norm helps; {}",
        state_.step, state_.skipped_in_row, run_.train.max_skipped, what_is_left());
  });
}

void Run::checkpoint() {
  if (saved_step_ == state_.step) return;
  const WeightCheck weights = engine_.check_weights();
  together(communicator_, [&] {
    if (!weights.not_finite.empty())
      run_error(
          "step {}: the weight {} is not finite any more, so no checkpoint is written; {}. A smaller "
          "optimizer.lr, more warmup or optimizer.clip_norm helps",
          state_.step, weights.not_finite, what_is_left());
  });
  require_same_weights(communicator_, weights.fingerprint, state_.step);
  const auto start = Clock::now();
  together(communicator_, [this] { save(); });
  saved_step_ = state_.step;
  if (report_)
    report_->checkpoint(state_.step, run_.train.out_dir + "/checkpoints/" + checkpoint_name(state_.step),
                        seconds_since(start));
}

// Rank 0 writes; where the states are in shares, the others give it theirs.
void Run::save() {
  const auto write = [this](const HostReader& read) {
    save_run(engine_, run_, state_, fingerprint_, parts_.train->dataset().tokenizer_path(), read);
  };
  const bool shares = run_.dist.shard_optimizer && communicator_.size() > 1;
  if (!shares && communicator_.rank() == 0) write({});
  if (!shares) return;
  StateCollection collection(communicator_, parts_.queue.get());
  const std::vector<NamedTensor> states = engine_.optimizer().states();
  if (communicator_.rank() != 0) return collection.serve(states);
  std::set<std::string> in_shares;
  for (const NamedTensor& state : states) in_shares.insert(state.name);
  HostAccess host(parts_.queue.get());
  try {
    write([&](const NamedTensor& t) {
      return in_shares.contains(t.name) ? collection.whole(t) : host.read(t.data);
    });
  } catch (...) {
    collection.end();
    throw;
  }
  collection.end();
}

void Run::evaluate_now() {
  if (!parts_.val) return;
  const auto start = Clock::now();
  const auto result = evaluate(
      *parts_.val, run_.batch.micro_batch, run_.eval.max_tokens,
      [&](const auto& inputs, const auto& labels, std::int64_t n) {
        return engine_.evaluate(inputs, labels, n);
      },
      SignalScope::stop_requested, communicator_);
  if (result && report_) report_->evaluation(state_.step, *result, seconds_since(start));
}

void Run::tell_step(const StepResult& result, double lr, double seconds) {
  const double sent = communicator_.wire_bytes(communicator_.tensor_bytes() -
                                               std::exchange(sent_, communicator_.tensor_bytes()));
  const double waited =
      communicator_.waited_seconds() - std::exchange(waited_, communicator_.waited_seconds());
  if (!report_) return;
  const double speed = static_cast<double>(parts_.plan.step_flops()) / seconds;
  if (gemm_peak_ && speed > *gemm_peak_) gemm_peak_ = peak_or_none(speed);
  report_->step(state_, {result, lr, seconds, sent, waited, gemm_peak_}, arena_.ledger());
  if (steps_here_ == 1) gemm_peak_ = peak_or_none(speed);
}

// All ranks take the same way from here on: what one of them was told or failed at, all know.
Run::Heard Run::hear_all(Loader& loader, StepBatch& batch) {
  std::exception_ptr failure;
  try {
    batch = loader.next();
  } catch (...) {
    failure = std::current_exception();
  }
  double said[] = {static_cast<double>(batch.targets), SignalScope::stop_requested() ? 1.0 : 0.0,
                   SignalScope::take_checkpoint_request() ? 1.0 : 0.0, failure ? 1.0 : 0.0};
  communicator_.sum(said);
  if (said[3] > 0)
    together(communicator_, [&] {
      if (failure) std::rethrow_exception(failure);
    });
  batch.targets = static_cast<std::int64_t>(said[0]);
  return {said[1] > 0, said[2] > 0};
}

void Run::count(const StepBatch& batch, const StepResult& result) {
  ++state_.step;
  ++steps_here_;
  state_.exponent = engine_.exponent();
  state_.window_start = engine_.window_start();
  state_.sample += run_.batch.tokens_per_step / run_.data.sequence_length;
  state_.tokens += batch.targets;
  // A batch without targets is no failure: only what is not finite counts towards the limit.
  const bool failed = !result.applied && batch.targets > 0;
  state_.skipped_in_row = failed ? state_.skipped_in_row + 1 : 0;
  state_.skipped += failed;
}

void Run::execute() {
  if (report_) report_->start(state_, parts_.resumed, schedule_);
  Loader loader(parts_.train, run_.seed, run_.batch.tokens_per_step / run_.data.sequence_length,
                state_.sample, {communicator_.rank(), communicator_.size()});
  const auto start = Clock::now();
  saved_step_ = parts_.resumed ? state_.step : -1;
  sent_ = communicator_.tensor_bytes();
  waited_ = communicator_.waited_seconds();

  while (state_.step < run_.train.steps) {
    const auto step_start = Clock::now();
    StepBatch batch;
    const Heard heard = hear_all(loader, batch);
    if (heard.checkpoint && steps_here_ > 0) {
      checkpoint();
      // A launcher's signal reaches the ranks at different moments; this step's checkpoint is for all of
      // them.
      SignalScope::take_checkpoint_request();
    }
    if (heard.stop) break;
    const double lr = schedule_.lr(state_.step);
    const StepResult result = engine_.step(batch, state_.step, lr);
    count(batch, result);
    tell_step(result, lr, seconds_since(step_start));
    if (state_.skipped_in_row > run_.train.max_skipped) give_up();

    const bool last = state_.step == run_.train.steps;
    if (due(run_.train.eval_every) || last) evaluate_now();
    // While steps are skipped the weights are in doubt: a checkpoint of them must not push out an older one.
    if ((due(run_.train.checkpoint_every) && state_.skipped_in_row == 0) || last) checkpoint();
  }
  if (state_.step < run_.train.steps && steps_here_ > 0) checkpoint();
  end(loader, seconds_since(start));
}

void Run::end(const Loader& loader, double seconds) {
  if (!report_) return;
  EndReport end{state_.step == run_.train.steps, seconds, loader.waited_seconds(),
                resident_bytes() - parts_.rss_at_start, std::nullopt};
  if (device_)
    end.device_over_start =
        device_->free_memory - cuda::device_info(parts_.queue->options().device).free_memory;
  report_->end(state_, end, arena_.ledger());
}

}  // namespace compact
