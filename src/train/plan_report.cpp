#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "compact/core/error.h"
#include "compact/train/engine.h"
#include "compact/train/plan.h"

namespace compact {

namespace {

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

// Tensors that each block has one of, as one entry: "model.layers.*.gate_up".
struct TensorGroup {
  std::string name;
  Category category = Category::Workspace;
  Shape shape;
  std::int64_t count = 0, bytes = 0;
};

std::vector<TensorGroup> groups_of(const std::vector<Allocation>& live) {
  constexpr std::string_view kLayers = "model.layers.";
  std::map<std::string, TensorGroup> by_name;
  for (const Allocation& a : live) {
    std::string name = a.name;
    if (name.starts_with(kLayers)) {
      const std::size_t end = name.find('.', kLayers.size());
      name = std::string(kLayers) + "*" + name.substr(end);
    }
    TensorGroup& group = by_name[name + " " + std::string(name_of(a.category)) + a.shape.text()];
    group.name = name;
    group.category = a.category;
    group.shape = a.shape;
    ++group.count;
    group.bytes += a.bytes;
  }
  std::vector<TensorGroup> groups;
  for (auto& [key, group] : by_name) groups.push_back(std::move(group));
  std::stable_sort(groups.begin(), groups.end(),
                   [](const TensorGroup& a, const TensorGroup& b) { return a.bytes > b.bytes; });
  return groups;
}

// What backward keeps of the inputs of q, k, v, gate, up and down: the inputs themselves or their
// projections.
std::int64_t kept_inputs(const RunPlan& plan) {
  std::int64_t bytes = 0;
  for (const Allocation& a : plan.live)
    for (const char* kind : {".normed1", ".normed2", ".product", ".z_qkv", ".z_gate_up", ".z_down"})
      if (a.category == Category::Activations && a.name.ends_with(kind)) bytes += a.bytes;
  return bytes;
}

std::int64_t activations(const RunPlan& plan) {
  return plan.at_peak[static_cast<std::size_t>(Category::Activations)];
}

// The paper's own comparison: what the preset that stores most keeps for backward, beside full rank.
struct PaperSaving {
  std::int64_t inputs = 0, full_inputs = 0, activations = 0, full_activations = 0;
};

std::optional<PaperSaving> paper_saving(const RunConfig& run, const ModelConfig& model, const RunPlan& plan) {
  if (run.memory.preset != "paper" || run.optimizer.name != "compact") return std::nullopt;
  RunConfig full = run;
  full.optimizer.name = "adamw";
  const RunPlan other = plan_run(full, model, plan.ranks);
  return PaperSaving{kept_inputs(plan), kept_inputs(other), activations(plan), activations(other)};
}

// What a rank would send in a step of the same run at full rank.
double full_rank_wire_bytes(const RunConfig& run, const ModelConfig& model, const RunPlan& plan) {
  RunConfig full = run;
  full.optimizer.name = "adamw";
  return plan_run(full, model, plan.ranks).wire_bytes;
}

}  // namespace

std::string plan_text(const RunConfig& run, const ModelConfig& model, const RunPlan& plan) {
  std::string out = fmt::format(
      "{} parameters, {}, {}, micro-batch {} x {} tokens, {} a step\nmemory at the peak of a step, all of "
      "the arena:\n{}",
      plan.parameters, run.precision,
      run.optimizer.name == "compact" ? fmt::format("compact, {} gradient elements", plan.gradient_elements)
                                      : std::string("full rank"),
      run.batch.micro_batch, run.data.sequence_length, plan.micro_batches, memory_table(plan.at_peak));
  const std::vector<TensorGroup> groups = groups_of(plan.live);
  out += "largest at that moment, of all blocks together:\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(groups.size(), 12); ++i)
    out += fmt::format("  {:>12}  {:<12} {:>3} x {} {}\n", human_bytes(groups[i].bytes),
                       name_of(groups[i].category), groups[i].count, groups[i].name, groups[i].shape.text());
  if (const auto saving = paper_saving(run, model, plan))
    out += fmt::format(
        "kept for backward, beside full rank with this preset: inputs of the compressed layers {} of {} "
        "({:.2f}x), all "
        "activations {} of {} ({:.2f}x)\n",
        human_bytes(saving->inputs), human_bytes(saving->full_inputs),
        static_cast<double>(saving->inputs) / static_cast<double>(saving->full_inputs),
        human_bytes(saving->activations), human_bytes(saving->full_activations),
        static_cast<double>(saving->activations) / static_cast<double>(saving->full_activations));
  if (plan.ranks > 1) {
    const double full = full_rank_wire_bytes(run, model, plan);
    out += fmt::format("one of {} ranks: sends {} a step, {:.2f}x of the {} at full rank{}\n", plan.ranks,
                       human_bytes(static_cast<std::int64_t>(plan.wire_bytes)), plan.wire_bytes / full,
                       human_bytes(static_cast<std::int64_t>(full)),
                       run.dist.shard_optimizer ? "; memory is that of the rank with the largest share" : "");
  }
  out += fmt::format("operations of a step: {:.3e} ({:.3e} in attention)\n",
                     static_cast<double>(plan.step_flops()),
                     static_cast<double>(plan.micro_batches * plan.micro_batch.attention));
  out += fmt::format("alternatives with this batch:\n  {:<20} {:<8} {:>12} {:>12} {:>12} {:>10} {:>10}\n",
                     "optimizer", "preset", "peak", "activations", "no workspace", "of this", "operations");
  for (const auto& [name, other] : alternatives(run)) {
    const RunPlan p = plan_run(other, model, plan.ranks);
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
  j["ranks"] = plan.ranks;
  j["wire_bytes"] = plan.wire_bytes;
  j["full_rank_wire_bytes"] = full_rank_wire_bytes(run, model, plan);
  j["step_flops"] = plan.step_flops();
  j["step_bytes"] = plan.step_bytes();
  j["micro_batch_gemm_flops"] = plan.micro_batch.gemm;
  j["micro_batch_attention_flops"] = plan.micro_batch.attention;
  j["update_flops"] = plan.update.gemm;
  for (const TensorGroup& group : groups_of(plan.live))
    j["live"].push_back({{"name", group.name},
                         {"category", name_of(group.category)},
                         {"shape", group.shape.text()},
                         {"count", group.count},
                         {"bytes", group.bytes}});
  if (const auto saving = paper_saving(run, model, plan))
    j["kept_for_backward"] = {{"compressed_inputs", saving->inputs},
                              {"full_rank_inputs", saving->full_inputs},
                              {"activations", saving->activations},
                              {"full_rank_activations", saving->full_activations}};
  for (const auto& [name, other] : alternatives(run)) {
    const RunPlan p = plan_run(other, model, plan.ranks);
    j["alternatives"].push_back({{"optimizer", other.optimizer.name},
                                 {"preset", other.memory.preset},
                                 {"peak_bytes", p.peak},
                                 {"bytes", categories(p.at_peak)},
                                 {"step_flops", p.step_flops()}});
  }
  return j.dump(2);
}

}  // namespace compact
