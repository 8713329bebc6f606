#include "compact/train/plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "compact/core/error.h"
#include "compact/train/engine.h"

namespace compact {

namespace {

// Operations, and bytes that ops read and write.
struct Work {
  FlopCount flops;
  std::int64_t bytes = 0;
};

Work work_so_far(const Context& context) {
  Work work{context.flops};
  for (int i = 0; i < kOps; ++i) work.bytes += context.clock->of(static_cast<Op>(i)).bytes;
  return work;
}

Work minus(const Work& a, const Work& b) {
  return {{a.flops.gemm - b.flops.gemm, a.flops.attention - b.flops.attention}, a.bytes - b.bytes};
}

constexpr std::array kPresets = {Preset::Paper, Preset::Lean, Preset::Tight, Preset::Block};

// The run's own optimizer and, beside it, full rank and CompAct n/4: what a reader wants to compare.
std::vector<std::pair<std::string, RunConfig>> alternatives(const RunConfig& run) {
  std::vector<std::pair<std::string, RunConfig>> all;
  RunConfig full = run, compressed = run;
  full.optimizer.name = "adamw";
  compressed.optimizer.name = "compact";
  compressed.optimizer.block_scale = 1.0;
  const std::string rank = compressed.compact.rank <= 1 ? fmt::format("{:g} n", compressed.compact.rank)
                                                        : fmt::format("{:g}", compressed.compact.rank);
  for (Preset preset : kPresets) {
    full.memory.preset = compressed.memory.preset = std::string(name_of(preset));
    all.emplace_back("adamw", full);
    all.emplace_back("compact r = " + rank, compressed);
  }
  return all;
}

}  // namespace

RunPlan plan_run(const RunConfig& run, const ModelConfig& model) {
  Arena arena(Device::Plan, Arena::kUnlimited);
  Engine engine(arena, run, model);
  const auto communicator = make_local_communicator();
  RunPlan plan;
  const std::int64_t B = run.batch.micro_batch;
  const std::int64_t sequences = run.batch.tokens_per_step / run.data.sequence_length;
  plan.micro_batches = (sequences + B - 1) / B;

  if (!run.data.val.empty()) engine.evaluate({}, {}, 0);
  OpClock clock;
  engine.context().clock = &clock;
  StepBatch batch;
  const auto work_of_step = [&](std::int64_t micro_batches, std::int64_t targets) {
    const Work before = work_so_far(engine.context());
    batch.sequences = micro_batches * B;
    batch.targets = targets;
    engine.step(*communicator, batch, 0, 0.0);
    return minus(work_so_far(engine.context()), before);
  };
  const Work one = work_of_step(1, 1);
  // A second micro-batch adds to the gradients, further ones would only repeat it. A step of one has no
  // second: there, one without targets makes no update.
  const Work pass = plan.micro_batches > 1 ? minus(work_of_step(2, 1), one) : work_of_step(1, 0);
  const Work update = minus(one, pass);
  plan.micro_batch = pass.flops;
  plan.micro_batch_bytes = pass.bytes;
  plan.update = update.flops;
  plan.update_bytes = update.bytes;
  // A new P takes memory of its own, once the run is long enough to draw one.
  if (run.optimizer.name == "compact" && run.train.steps > run.compact.update_gap) {
    batch.sequences = std::min(plan.micro_batches, std::int64_t{2}) * B;
    batch.targets = 1;
    engine.step(*communicator, batch, run.compact.update_gap, 0.0);
  }
  plan.peak = arena.ledger().peak();
  plan.at_peak = arena.ledger().at_peak();
  plan.live = arena.ledger().live_at_peak();

  plan.parameters = model.parameters();
  for (const Parameter& p : engine.model().parameters()) plan.gradient_elements += p.gradient.elements();
  return plan;
}

std::int64_t parse_bytes(const std::string& text, const std::string& option) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  std::string unit(at, end);
  unit.erase(std::remove(unit.begin(), unit.end(), ' '), unit.end());
  static constexpr std::pair<std::string_view, double> units[] = {{"", 1},
                                                                  {"B", 1},
                                                                  {"K", 1e3},
                                                                  {"KB", 1e3},
                                                                  {"M", 1e6},
                                                                  {"MB", 1e6},
                                                                  {"G", 1e9},
                                                                  {"GB", 1e9},
                                                                  {"T", 1e12},
                                                                  {"TB", 1e12},
                                                                  {"KiB", 1024},
                                                                  {"MiB", 1048576},
                                                                  {"GiB", 1073741824},
                                                                  {"TiB", 1099511627776.0}};
  for (const auto& [name, factor] : units)
    if (error == std::errc() && unit == name && std::isfinite(value) && value > 0 && value * factor < 9e18)
      return static_cast<std::int64_t>(value * factor);
  input_error("{}: expected a number of bytes such as 8000000000, 8e9, 8GB or 8GiB, found \"{}\"", option,
              text);
}

std::string plan_text(const RunConfig& run, const ModelConfig& model, const RunPlan& plan) {
  std::string out = fmt::format(
      "{} parameters, {}, {}, micro-batch {} x {} tokens, {} a step\nmemory at the peak of a step, all of "
      "the arena:\n{}",
      plan.parameters, run.precision,
      run.optimizer.name == "compact" ? fmt::format("compact, {} gradient elements", plan.gradient_elements)
                                      : std::string("full rank"),
      run.batch.micro_batch, run.data.sequence_length, plan.micro_batches, memory_table(plan.at_peak));
  std::vector<Allocation> largest = plan.live;
  std::stable_sort(largest.begin(), largest.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  out += "largest tensors at that moment:\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(largest.size(), 8); ++i)
    out += fmt::format("  {:>12}  {:<12} {} {}\n", human_bytes(largest[i].bytes),
                       name_of(largest[i].category), largest[i].name, largest[i].shape.text());
  out += fmt::format("operations of a step: {:.3e} ({:.3e} in attention)\n",
                     static_cast<double>(plan.step_flops()),
                     static_cast<double>(plan.micro_batches * plan.micro_batch.attention));
  out += fmt::format("alternatives with this batch:\n  {:<20} {:<8} {:>12} {:>12} {:>12} {:>10} {:>10}\n",
                     "optimizer", "preset", "peak", "activations", "no workspace", "of this", "operations");
  for (const auto& [name, other] : alternatives(run)) {
    const RunPlan p = plan_run(other, model);
    out += fmt::format("  {:<20} {:<8} {:>12} {:>12} {:>12} {:>9.2f}x {:>9.2f}x{}\n", name,
                       other.memory.preset, human_bytes(p.peak),
                       human_bytes(p.at_peak[static_cast<std::size_t>(Category::Activations)]),
                       human_bytes(p.peak - p.at_peak[static_cast<std::size_t>(Category::Workspace)]),
                       static_cast<double>(p.peak) / static_cast<double>(plan.peak),
                       static_cast<double>(p.step_flops()) / static_cast<double>(plan.step_flops()),
                       other.memory.preset == run.memory.preset && other.optimizer.name == run.optimizer.name
                           ? "  <- this run"
                           : "");
  }
  return out;
}

std::string plan_json(const RunConfig& run, const ModelConfig& model, const RunPlan& plan) {
  const auto categories = [](const CategoryBytes& bytes) {
    nlohmann::ordered_json j;
    for (int c = 0; c < kCategories; ++c)
      j[std::string(name_of(static_cast<Category>(c)))] = bytes[static_cast<std::size_t>(c)];
    return j;
  };
  nlohmann::ordered_json j;
  j["settings"] = {{"micro_batch", run.batch.micro_batch},
                   {"preset", run.memory.preset},
                   {"logits_chunk_bytes", run.memory.logits_chunk_bytes}};
  j["parameters"] = plan.parameters;
  j["gradient_elements"] = plan.gradient_elements;
  j["peak_bytes"] = plan.peak;
  j["bytes"] = categories(plan.at_peak);
  j["micro_batches"] = plan.micro_batches;
  j["step_flops"] = plan.step_flops();
  j["step_bytes"] = plan.step_bytes();
  j["micro_batch_gemm_flops"] = plan.micro_batch.gemm;
  j["micro_batch_attention_flops"] = plan.micro_batch.attention;
  j["update_flops"] = plan.update.gemm;
  for (const auto& [name, other] : alternatives(run)) {
    const RunPlan p = plan_run(other, model);
    j["alternatives"].push_back({{"optimizer", other.optimizer.name},
                                 {"preset", other.memory.preset},
                                 {"peak_bytes", p.peak},
                                 {"bytes", categories(p.at_peak)},
                                 {"step_flops", p.step_flops()}});
  }
  return j.dump(2);
}

}  // namespace compact
