#include "run_report.h"

#include <nlohmann/json.hpp>

#include "compact/core/error.h"
#include "compact/dist/launcher.h"
#include "compact/io/checkpoint.h"
#include "compact/io/file.h"
#include "compact/train/machine.h"
#include "kernels/cpu_isa.h"

namespace compact {

namespace {

using Json = nlohmann::ordered_json;

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

// The folder as it must be before the files in it are opened: its name.
const std::string& prepared_folder(const RunConfig& run, std::int64_t first_step, bool resumed) {
  const std::string& out = run.train.out_dir;
  make_folders(out + "/checkpoints");
  if (resumed) cut_metrics(out + "/metrics.jsonl", first_step);
  write_text_atomically(out + "/config.resolved.json", resolved_json(run) + "\n");
  return out;
}

}  // namespace

RunReport::RunReport(RunFacts facts, std::int64_t first_step, bool resumed)
    : facts_(std::move(facts)),
      progress_(prepared_folder(facts_.run, first_step, resumed) + "/run.log",
                facts_.place.size == 1 && !under_launcher()),
      metrics_(facts_.run.train.out_dir + "/metrics.jsonl") {}

void RunReport::start(const RunState& state, const std::optional<Resumed>& resumed,
                      const Schedule& schedule) {
  const RunConfig& run = facts_.run;
  const RunPlan& plan = facts_.plan;
  const int ranks = facts_.place.size;
  Json start = {{"event", "start"},
                {"step", state.step},
                {"version", COMPACT_VERSION},
                {"device", run.device},
                {"cpu", cpu_name()},
                {"card", facts_.device ? Json(describe(*facts_.device)) : Json(nullptr)},
                {"threads", facts_.threads},
                {"ranks", ranks},
                {"parameters", plan.parameters},
                {"optimizer", run.optimizer.name},
                {"preset", run.memory.preset},
                {"step_flops", plan.step_flops()},
                {"plan", bytes_json(plan.at_peak)}};
  if (ranks > 1) start["mpi"] = mpi_version();
  if (resumed) start["resumed_from"] = resumed->folder;
  metrics_.write(start);
  say(fmt::format("compact {}: {} parameters, {} ({}), {}, {} threads, {} tokens a step, memory {}",
                  COMPACT_VERSION, plan.parameters, run.optimizer.name, run.memory.preset, run.precision,
                  facts_.threads, run.batch.tokens_per_step, human_bytes(plan.peak)));
  if (ranks > 1)
    say(fmt::format("{} ranks ({} on this machine), {} sequences of a step each; each sends {} a step{}",
                    ranks, facts_.place.local_size, rank_sequences(run, ranks),
                    human_bytes(static_cast<std::int64_t>(plan.wire_bytes)),
                    run.dist.shard_optimizer ? "; the optimizer is sharded" : ""));
  if (facts_.device) say(describe(*facts_.device));
  if (!facts_.device && run.precision == "bf16" && !has_bf16_products())
    say("no bf16 instructions (AVX512_BF16) on this CPU, or not with this COMPACT_ISA: products are computed "
        "in fp32, correct but slower");
  if (!resumed) return;
  say(fmt::format("resumed from {} at step {}", resumed->folder, state.step));
  if (resumed->config.train.steps != run.train.steps)
    say(fmt::format("train.steps is {} now and was {}; the schedule from here on: {}", run.train.steps,
                    resumed->config.train.steps, schedule.describe()));
}

void RunReport::step(const RunState& state, const StepReport& step, const Ledger& ledger) {
  const RunConfig& run = facts_.run;
  const StepResult& result = step.result;
  const double speed = static_cast<double>(run.batch.tokens_per_step) / step.seconds;
  Json event = {{"event", result.applied ? "step" : "skip"},
                {"step", state.step},
                {"tokens", state.tokens},
                {"loss", result.loss},
                {"lr", step.lr},
                {"grad_norm", result.grad_norm},
                {"step_ms", step.seconds * 1e3},
                {"tokens_per_second", speed}};
  std::optional<double> fraction;  // of the machine's GEMM peak
  if (step.gemm_peak)
    fraction = static_cast<double>(facts_.plan.step_flops()) / step.seconds / *step.gemm_peak;
  event["flops_fraction"] = fraction ? Json(*fraction) : Json(nullptr);
  if (facts_.place.size > 1) {
    event["wire_bytes"] = step.wire_bytes;
    event["ranks_waited_ms"] = step.waited * 1e3;
  }
  event["memory"] = bytes_json(ledger.at_peak());
  metrics_.write(event);

  ++steps_here_;
  step_seconds_ = steps_here_ <= 2 ? step.seconds : 0.9 * step_seconds_ + 0.1 * step.seconds;
  const double left = step_seconds_ * static_cast<double>(run.train.steps - state.step);
  std::string line = fmt::format("step {}/{}  loss {:.4f}  lr {:.3g}  {:.0f} tokens/s", state.step,
                                 run.train.steps, result.loss, step.lr, speed);
  if (fraction) line += fmt::format(" ({:.0f} % of GEMM peak)", 100 * *fraction);
  line += fmt::format("  {} left  {}", duration_text(left), human_bytes(ledger.peak()));
  if (last_val_loss_) line += fmt::format("  val {:.4f}", *last_val_loss_);
  progress_.state(line, state.step == run.train.steps || !result.applied);
}

void RunReport::evaluation(std::int64_t step, const Evaluation& e, double seconds) {
  const bool galore = facts_.run.eval.protocol == "galore";
  last_val_loss_ = galore ? e.galore_loss : e.loss;
  Json event = {{"event", "eval"},         {"step", step},
                {"loss", *last_val_loss_}, {"perplexity", galore ? e.galore_perplexity() : e.perplexity()},
                {"tokens", e.tokens},      {"seconds", seconds}};
  if (galore) {
    event["exact_loss"] = e.loss;
    event["exact_perplexity"] = e.perplexity();
  }
  metrics_.write(event);
  say(fmt::format("step {}: validation loss {:.4f}, perplexity {:.3f}{}", step, e.loss, e.perplexity(),
                  galore ? fmt::format(" (published divisor: loss {:.4f}, perplexity {:.3f})", e.galore_loss,
                                       e.galore_perplexity())
                         : std::string()));
}

void RunReport::checkpoint(std::int64_t step, const std::string& folder, double seconds) {
  metrics_.write({{"event", "checkpoint"}, {"step", step}, {"path", folder}, {"seconds", seconds}});
  say("checkpoint " + folder);
}

void RunReport::end(const RunState& state, const EndReport& end, const Ledger& ledger) {
  Json event = {{"event", "end"},
                {"step", state.step},
                {"finished", end.finished},
                {"seconds", end.seconds},
                {"skipped", state.skipped},
                {"loader_waited_seconds", end.loader_waited},
                {"planned_peak_bytes", facts_.plan.peak},
                {"measured_peak_bytes", ledger.peak()},
                {"resident_bytes_over_start", end.resident_over_start}};
  if (end.device_over_start) event["device_bytes_over_start"] = *end.device_over_start;
  metrics_.write(event);
  if (end.finished)
    say(fmt::format(
        "finished {} steps{} in {}; the model is in {}", state.step,
        state.skipped > 0 ? fmt::format(" ({} of them skipped as not finite)", state.skipped) : std::string(),
        duration_text(end.seconds),
        facts_.run.train.out_dir + "/checkpoints/" + checkpoint_name(state.step)));
  else
    say(state.step > 0 ? fmt::format("stopped by a signal after step {}; go on with --resume", state.step)
                       : std::string("stopped by a signal before the first step; nothing is saved"));
}

}  // namespace compact
