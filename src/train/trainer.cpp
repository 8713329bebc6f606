#include "compact/train/trainer.h"

#include <omp.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "compact/core/error.h"
#include "compact/data/tokenizer.h"
#include "compact/io/checkpoint.h"
#include "compact/io/file.h"
#include "compact/optim/schedule.h"
#include "compact/train/cuda_device.h"
#include "compact/train/engine.h"
#include "compact/train/evaluator.h"
#include "compact/train/machine.h"
#include "compact/train/metrics.h"
#include "compact/train/plan.h"
#include "compact/train/progress.h"
#include "compact/train/run_state.h"
#include "compact/train/signals.h"
#include "kernels/cpu_isa.h"

namespace compact {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

namespace {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Json bytes_json(const CategoryBytes& bytes) {
  Json j;
  std::int64_t total = 0;
  for (int c = 0; c < kCategories; ++c) {
    j[std::string(name_of(static_cast<Category>(c)))] = bytes[static_cast<std::size_t>(c)];
    total += bytes[static_cast<std::size_t>(c)];
  }
  j["total"] = total;
  return j;
}

void check_different_data(const Dataset& train, const Dataset& val) {
  for (const auto& a : train.shards)
    for (const auto& b : val.shards)
      if (fs::equivalent(a->path(), b->path()))
        input_error("data.train and data.val both hold {}: a validation loss on training data says nothing",
                    a->path());
}

// The data know which ids begin and end a text; a checkpoint that said otherwise would not stop where its
// texts do.
void adopt_token_ids(ModelConfig& model, const Dataset& data) {
  if (!data.manifest) return;
  model.eos_token_id = data.manifest->end_of_text;
  if (const std::string path = data.tokenizer_path(); !path.empty())
    if (const std::int32_t bos = Tokenizer(path).bos(); bos >= 0) model.bos_token_id = bos;
}

bool holds_a_run(const std::string& out) {
  if (fs::exists(out + "/metrics.jsonl") || fs::exists(out + "/config.resolved.json")) return true;
  return !list_checkpoints(out, [](const std::string&, const std::string&) {}).empty();
}

// One training run after all checks: owns what lives as long as the run.
class Run {
 public:
  Run(const RunConfig& run, const ModelConfig& model, std::shared_ptr<const Windows> train,
      std::shared_ptr<const Windows> val, const RunPlan& plan, std::optional<Resumed> resumed, int threads,
      std::int64_t rss_at_start, std::unique_ptr<cuda::Queue> queue)
      : run_(run),
        train_(std::move(train)),
        val_(std::move(val)),
        plan_(plan),
        resumed_(std::move(resumed)),
        threads_(threads),
        rss_at_start_(rss_at_start),
        fingerprint_(data_fingerprint(train_->dataset())),
        queue_(std::move(queue)),
        device_(queue_ ? std::optional(cuda::device_info(queue_->options().device)) : std::nullopt),
        arena_(queue_ ? Device::Cuda : Device::Cpu, plan.peak),
        engine_(arena_, run_, model, queue_.get()),
        communicator_(make_local_communicator()),
        schedule_(make_schedule()) {
    if (resumed_) {
      restore(engine_, *resumed_);
      state_ = resumed_->state;
    } else if (!run_.init_from.empty()) {
      engine_.load(run_.init_from);
    } else {
      engine_.initialize();
    }
  }

  void execute();

 private:
  Schedule make_schedule() const;
  void open_output();
  void say_start();
  void report_step(const StepResult& result, double lr, double seconds);
  void evaluate_now();
  void checkpoint();
  bool due(const Period& period) const;
  std::optional<double> peak_or_none(DType operands, double seen) const;
  std::string what_is_left() const;

  RunConfig run_;
  std::shared_ptr<const Windows> train_, val_;
  RunPlan plan_;
  std::optional<Resumed> resumed_;
  int threads_;
  std::int64_t rss_at_start_;
  std::string fingerprint_;
  std::unique_ptr<cuda::Queue> queue_;      // null on the CPU
  std::optional<cuda::DeviceInfo> device_;  // before the arena was taken
  Arena arena_;
  Engine engine_;
  std::unique_ptr<Communicator> communicator_;
  Schedule schedule_;
  RunState state_;
  SignalScope signals_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<MetricsFile> metrics_;
  double step_seconds_ = 0;          // running mean, for the remaining time
  std::int64_t steps_here_ = 0;      // steps made by this process
  std::int64_t saved_step_ = -1;     // step of the newest checkpoint
  std::optional<double> gemm_peak_;  // operations a second; measured after the first step
  std::optional<double> last_val_loss_;
};

Schedule Run::make_schedule() const {
  const auto steps = [&](const Period& p) { return p.steps(run_.train.steps, run_.batch.tokens_per_step); };
  return Schedule({run_.schedule.name, run_.optimizer.lr, run_.train.steps, steps(run_.schedule.warmup),
                   steps(run_.schedule.decay), run_.schedule.final_fraction});
}

void Run::open_output() {
  const std::string& out = run_.train.out_dir;
  make_folders(out + "/checkpoints");
  if (resumed_) cut_metrics(out + "/metrics.jsonl", state_.step);
  write_text_atomically(out + "/config.resolved.json", resolved_json(run_) + "\n");
  progress_ = std::make_unique<Progress>(out + "/run.log");
  metrics_ = std::make_unique<MetricsFile>(out + "/metrics.jsonl");
}

void Run::say_start() {
  Json start = {{"event", "start"},
                {"step", state_.step},
                {"version", COMPACT_VERSION},
                {"device", run_.device},
                {"cpu", cpu_name()},
                {"card", device_ ? Json(describe(*device_)) : Json(nullptr)},
                {"threads", threads_},
                {"ranks", communicator_->size()},
                {"parameters", plan_.parameters},
                {"optimizer", run_.optimizer.name},
                {"preset", run_.memory.preset},
                {"step_flops", plan_.step_flops()},
                {"plan", bytes_json(plan_.at_peak)}};
  if (resumed_) start["resumed_from"] = resumed_->folder;
  metrics_->write(start);
  progress_->say(
      fmt::format("compact {}: {} parameters, {} ({}), {}, {} threads, {} tokens a step, memory {}",
                  COMPACT_VERSION, plan_.parameters, run_.optimizer.name, run_.memory.preset, run_.precision,
                  threads_, run_.batch.tokens_per_step, human_bytes(plan_.peak)));
  if (device_) progress_->say(describe(*device_));
  if (!device_ && run_.precision == "bf16" && !has_bf16_products())
    progress_->say(
        "no bf16 instructions (AVX512_BF16) on this CPU, or not with this COMPACT_ISA: products are computed "
        "in fp32, "
        "correct but slower");
  if (!resumed_) return;
  progress_->say(fmt::format("resumed from {} at step {}", resumed_->folder, state_.step));
  if (resumed_->config.train.steps != run_.train.steps)
    progress_->say(fmt::format("train.steps is {} now and was {}; the schedule from here on: {}",
                               run_.train.steps, resumed_->config.train.steps, schedule_.describe()));
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
std::optional<double> Run::peak_or_none(DType operands, double seen) const {
  try {
    return reference_peak(operands, seen, queue_.get());
  } catch (const RunError&) {
    return std::nullopt;
  }
}

void Run::checkpoint() {
  if (saved_step_ == state_.step) return;
  if (const std::string broken = engine_.first_weight_not_finite(); !broken.empty())
    run_error(
        "step {}: the weight {} is not finite any more, so no checkpoint is written; {}. A smaller "
        "optimizer.lr, more "
        "warmup or optimizer.clip_norm helps",
        state_.step, broken, what_is_left());
  const auto start = Clock::now();
  save_run(engine_, run_, state_, fingerprint_, train_->dataset().tokenizer_path());
  saved_step_ = state_.step;
  const std::string folder = run_.train.out_dir + "/checkpoints/" + checkpoint_name(state_.step);
  metrics_->write(
      {{"event", "checkpoint"}, {"step", state_.step}, {"path", folder}, {"seconds", seconds_since(start)}});
  progress_->say("checkpoint " + folder);
}

void Run::evaluate_now() {
  if (!val_) return;
  const auto start = Clock::now();
  const auto result = evaluate(
      *val_, run_.batch.micro_batch, run_.eval.max_tokens,
      [&](const auto& inputs, const auto& labels, std::int64_t n) {
        return engine_.evaluate(inputs, labels, n);
      },
      [&] { return signals_.stop_requested(); });
  if (!result) return;
  const bool galore = run_.eval.protocol == "galore";
  last_val_loss_ = galore ? result->galore_loss : result->loss;
  Json event = {
      {"event", "eval"},          {"step", state_.step},
      {"loss", *last_val_loss_},  {"perplexity", galore ? result->galore_perplexity() : result->perplexity()},
      {"tokens", result->tokens}, {"seconds", seconds_since(start)}};
  if (galore) {
    event["exact_loss"] = result->loss;
    event["exact_perplexity"] = result->perplexity();
  }
  metrics_->write(event);
  progress_->say(fmt::format("step {}: validation loss {:.4f}, perplexity {:.3f}{}", state_.step,
                             result->loss, result->perplexity(),
                             galore ? fmt::format(" (published divisor: loss {:.4f}, perplexity {:.3f})",
                                                  result->galore_loss, result->galore_perplexity())
                                    : std::string()));
}

void Run::report_step(const StepResult& result, double lr, double seconds) {
  const double speed = static_cast<double>(run_.batch.tokens_per_step) / seconds;
  Json event = {{"event", result.applied ? "step" : "skip"},
                {"step", state_.step},
                {"tokens", state_.tokens},
                {"loss", result.loss},
                {"lr", lr},
                {"grad_norm", result.grad_norm},
                {"step_ms", seconds * 1e3},
                {"tokens_per_second", speed}};
  std::optional<double> fraction;  // of the machine's GEMM peak
  if (gemm_peak_) fraction = static_cast<double>(plan_.step_flops()) / seconds / *gemm_peak_;
  event["flops_fraction"] = fraction ? Json(*fraction) : Json(nullptr);
  event["memory"] = bytes_json(arena_.ledger().at_peak());
  metrics_->write(event);

  step_seconds_ = steps_here_ <= 2 ? seconds : 0.9 * step_seconds_ + 0.1 * seconds;
  const double left = step_seconds_ * static_cast<double>(run_.train.steps - state_.step);
  std::string line = fmt::format("step {}/{}  loss {:.4f}  lr {:.3g}  {:.0f} tokens/s", state_.step,
                                 run_.train.steps, result.loss, lr, speed);
  if (fraction) line += fmt::format(" ({:.0f} % of GEMM peak)", 100 * *fraction);
  line += fmt::format("  {} left  {}", duration_text(left), human_bytes(arena_.ledger().peak()));
  if (last_val_loss_) line += fmt::format("  val {:.4f}", *last_val_loss_);
  progress_->state(line, state_.step == run_.train.steps || !result.applied);
}

void Run::execute() {
  open_output();
  say_start();
  const std::int64_t sequences = run_.batch.tokens_per_step / run_.data.sequence_length;
  Loader loader(train_, run_.seed, sequences, state_.sample);
  const auto start = Clock::now();
  saved_step_ = resumed_ ? state_.step : -1;
  const DType operands = llama_options(run_).types.activation;  // of the matrix products

  while (state_.step < run_.train.steps && !signals_.stop_requested()) {
    const auto step_start = Clock::now();
    const StepBatch batch = loader.next();
    const double lr = schedule_.lr(state_.step);
    const StepResult result = engine_.step(*communicator_, batch, state_.step, lr);
    ++state_.step;
    ++steps_here_;
    state_.exponent = engine_.exponent();
    state_.window_start = engine_.window_start();
    state_.sample += sequences;
    state_.tokens += batch.targets;
    const double seconds = seconds_since(step_start);
    const double speed = static_cast<double>(plan_.step_flops()) / seconds;
    if (gemm_peak_ && speed > *gemm_peak_) gemm_peak_ = peak_or_none(operands, speed);
    report_step(result, lr, seconds);
    if (steps_here_ == 1) gemm_peak_ = peak_or_none(operands, speed);

    // A batch without targets is no failure: only what is not finite counts towards the limit.
    const bool failed = !result.applied && batch.targets > 0;
    state_.skipped_in_row = failed ? state_.skipped_in_row + 1 : 0;
    state_.skipped += failed;
    if (state_.skipped_in_row > run_.train.max_skipped)
      run_error(
          "step {}: the loss or the gradient was not finite in {} steps in a row (train.max_skipped is {}); "
          "no "
          "weight was changed by them. A smaller optimizer.lr, more warmup or optimizer.clip_norm helps; {}",
          state_.step, state_.skipped_in_row, run_.train.max_skipped, what_is_left());

    const bool last = state_.step == run_.train.steps;
    if (due(run_.train.eval_every) || last) evaluate_now();
    const bool asked = signals_.take_checkpoint_request();
    // While steps are skipped the weights are in doubt: a checkpoint of them must not push out an older one.
    if ((due(run_.train.checkpoint_every) && state_.skipped_in_row == 0) || last || asked) checkpoint();
  }

  const bool finished = state_.step == run_.train.steps;
  if (!finished && steps_here_ > 0) checkpoint();
  Json end = {{"event", "end"},
              {"step", state_.step},
              {"finished", finished},
              {"seconds", seconds_since(start)},
              {"skipped", state_.skipped},
              {"loader_waited_seconds", loader.waited_seconds()},
              {"planned_peak_bytes", plan_.peak},
              {"measured_peak_bytes", arena_.ledger().peak()},
              {"resident_bytes_over_start", resident_bytes() - rss_at_start_}};
  if (device_)
    end["device_bytes_over_start"] =
        device_->free_memory - cuda::device_info(queue_->options().device).free_memory;
  metrics_->write(end);
  if (finished)
    progress_->say(fmt::format("finished {} steps{} in {}; the model is in {}", state_.step,
                               state_.skipped > 0
                                   ? fmt::format(" ({} of them skipped as not finite)", state_.skipped)
                                   : std::string(),
                               duration_text(seconds_since(start)),
                               run_.train.out_dir + "/checkpoints/" + checkpoint_name(state_.step)));
  else
    progress_->say(fmt::format("stopped by a signal after step {}; go on with --resume", state_.step));
}

}  // namespace

void train(const TrainRequest& request) {
  const std::int64_t rss_at_start = resident_bytes();
  RunConfig run = request.run;
  ModelConfig model = model_of(run);
  check_against_model(run, model, request.run_file);
  check_computable(run, model, request.run_file);
  warn_of_unused_settings(run, request.run_file);
  const int threads = use_threads(run.threads, 1);

  Dataset train_data = open_dataset(run.data.train, "data.train", model.vocab_size);
  std::shared_ptr<const Windows> val;
  if (!run.data.val.empty()) {
    Dataset val_data = open_dataset(run.data.val, "data.val", model.vocab_size);
    check_different_data(train_data, val_data);
    val = std::make_shared<Windows>(std::move(val_data), run.data.sequence_length, model.vocab_size);
  }
  adopt_token_ids(model, train_data);
  auto windows = std::make_shared<Windows>(std::move(train_data), run.data.sequence_length, model.vocab_size);

  // Before anything in the folder is read: a run that is going on would change it meanwhile.
  std::unique_ptr<FolderLock> lock;
  if (!request.dry_run && fs::is_directory(run.train.out_dir))
    lock = std::make_unique<FolderLock>(run.train.out_dir);
  std::optional<Resumed> resumed;
  if (request.resume) {
    resumed = find_resume(run, model, data_fingerprint(windows->dataset()));
  } else if (holds_a_run(run.train.out_dir)) {
    input_error(
        "train.out_dir \"{}\" holds a run already; add --resume to go on with it, or name another out_dir",
        run.train.out_dir);
  }

  const RunPlan plan = plan_run(run, model);
  if (request.dry_run) {
    fmt::print("{}", plan_text(run, model, plan));
    if (run.device == "cuda") fmt::print("The CUDA device itself was not looked at.\n");
    return;
  }
  std::unique_ptr<cuda::Queue> queue = open_queue(run);
  require_memory(queue.get(), plan.peak, memory_table(plan.at_peak));
  if (!lock) {
    make_folders(run.train.out_dir);
    lock = std::make_unique<FolderLock>(run.train.out_dir);
  }
  Run(run, model, std::move(windows), std::move(val), plan, std::move(resumed), threads, rss_at_start,
      std::move(queue))
      .execute();
}

}  // namespace compact
