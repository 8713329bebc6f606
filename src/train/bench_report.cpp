#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "compact/train/bench.h"

namespace compact {

namespace {

using Json = nlohmann::ordered_json;

std::string_view precision_of(DType type) { return type == DType::BF16 ? "bf16" : "fp32"; }

double total_flops(const OpBench& op) {
  double flops = 0;
  for (const auto& [type, of_type] : op.flops) flops += of_type;
  return flops;
}

// The step in five parts; what reads gradients for their norm belongs to the optimizer.
struct Budget {
  double gemm = 0, attention = 0, other = 0, optimizer = 0, outside = 0;
};

Budget budget_of(const StepBench& step) {
  Budget budget;
  budget.outside = step.outside_seconds;
  for (const OpBench& op : step.ops) {
    double& part = op.op == Op::Gemm                                   ? budget.gemm
                   : op.op == Op::Attention                            ? budget.attention
                   : op.op == Op::Optimizer || op.op == Op::GlobalNorm ? budget.optimizer
                                                                       : budget.other;
    part += op.time.seconds;
  }
  return budget;
}

double speed_of(const GemmBench& g) { return g.flops() / g.seconds; }

std::string kind_of(const GemmCall& c) {
  return std::string(c.transpose_a ? "T" : "N") + (c.transpose_b ? "T" : "N") + (c.accumulate ? "+" : "");
}

std::string gemm_table(const std::vector<GemmBench>& gemms, const MachineBench& machine) {
  std::string out = fmt::format("{:>7} {:>7} {:>7}  {:<4} {:<5} {:>6} {:>10} {:>9} {:>8}\n", "M", "K", "N",
                                "kind", "type", "calls", "ms a call", "GFLOP/s", "of peak");
  for (const GemmBench& g : gemms)
    out +=
        fmt::format("{:>7} {:>7} {:>7}  {:<4} {:<5} {:>6} {:>10.3f} {:>9.1f} {:>7.0f}%\n", g.call.M, g.call.K,
                    g.call.N, kind_of(g.call), precision_of(g.call.operands), g.calls, g.seconds * 1e3,
                    speed_of(g) * 1e-9, 100 * speed_of(g) / machine.gemm_peak.at(g.call.operands));
  return out;
}

// One line of the budget; a dash where a kind of work has no such number.
std::string budget_line(std::string_view name, double seconds, double share, std::int64_t calls, double bytes,
                        double flops, double floor) {
  const auto number = [](double value, std::string_view unit) {
    return value > 0 ? fmt::format("{:.1f}{}", value, unit) : std::string("-");
  };
  return fmt::format("{:<16} {:>9.1f} {:>6.1f}% {:>6} {:>8} {:>8} {:>8} {:>9}\n", name, seconds * 1e3,
                     100 * share, calls > 0 ? std::to_string(calls) : "-", number(bytes * 1e-9, ""),
                     number(bytes * 1e-9 / seconds, ""), number(flops * 1e-9 / seconds, ""),
                     floor > 0 ? fmt::format("{:.0f}%", 100 * floor / seconds) : "-");
}

bool on_card(const MachineBench& machine) { return !machine.card.empty(); }

double speed_of(const StepBench& s) { return static_cast<double>(s.step_flops) / s.step_seconds; }

// Of the peak of products of the run's type; a run may have some of the other type as well.
double peak_fraction(const StepBench& s, const MachineBench& machine) {
  return speed_of(s) / machine.gemm_peak.at(s.run.precision == "bf16" ? DType::BF16 : DType::F32);
}

std::optional<double> sheet_fraction(const StepBench& s, const MachineBench& machine) {
  if (!machine.data_sheet) return std::nullopt;
  return speed_of(s) / (s.run.precision == "bf16" ? machine.data_sheet->bf16 : machine.data_sheet->fp32);
}

std::string sheet_text(const StepBench& s, const MachineBench& machine) {
  if (!on_card(machine)) return "";
  const std::optional<double> fraction = sheet_fraction(s, machine);
  return fraction ? fmt::format(" and {:.0f}% of the data sheet's", 100 * *fraction) : ", data sheet n/a";
}

std::string step_text(const StepBench& s, const MachineBench& machine) {
  std::string out = fmt::format(
      "one step: {} parameters, {}, {}, preset {}, {} sequences of {} tokens in micro-batches of {}\n",
      s.parameters, s.run.precision, s.run.optimizer.name, s.run.memory.preset,
      s.tokens / s.run.data.sequence_length, s.run.data.sequence_length, s.run.batch.micro_batch);
  out += fmt::format("{:<16} {:>9} {:>7} {:>6} {:>8} {:>8} {:>8} {:>9}\n", "", "ms", "share", "calls", "GB",
                     "GB/s", "GFLOP/s", "of floor");
  double bytes = 0, flops = 0, floor = 0;
  std::int64_t calls = 0;
  for (const OpBench& op : s.ops) {
    const double least = floor_seconds(op, machine);
    out += budget_line(name_of(op.op), op.time.seconds, op.time.seconds / s.split_seconds, op.time.calls,
                       static_cast<double>(op.time.bytes), total_flops(op), least);
    bytes += static_cast<double>(op.time.bytes);
    flops += total_flops(op);
    floor += least;
    calls += op.time.calls;
  }
  out += budget_line("waiting, rest", s.outside_seconds, s.outside_seconds / s.split_seconds, 0, 0, 0, 0);
  out += budget_line("step", s.split_seconds, 1, calls, bytes, flops, floor);

  const Budget b = budget_of(s);
  const auto percent = [&](double seconds) { return 100 * seconds / s.split_seconds; };
  out += fmt::format(
      "matrix products {:.1f}%, attention {:.1f}%, other ops {:.1f}%, optimizer {:.1f}%, waiting {:.1f}%\n",
      percent(b.gemm), percent(b.attention), percent(b.other), percent(b.optimizer), percent(b.outside));
  if (on_card(machine))
    out += fmt::format(
        "as a run takes it, without waiting for each launch: {:.1f} ms; on the card {}, graphs recorded {}\n",
        s.step_seconds * 1e3, human_bytes(s.device_bytes), s.graphs_recorded);
  out += fmt::format("{:.0f} tokens/s, {:.0f}% of the measured peak{}; memory {}\n",
                     static_cast<double>(s.tokens) / s.step_seconds, 100 * peak_fraction(s, machine),
                     sheet_text(s, machine), human_bytes(s.peak_bytes));
  if (s.gemms.empty()) return out;
  return out +
         fmt::format("its products alone take {:.3f} s; step / products = {:.2f}\n\n", s.gemm_seconds,
                     s.step_seconds / s.gemm_seconds) +
         gemm_table(s.gemms, machine);
}

Json gemm_json(const std::vector<GemmBench>& gemms, const MachineBench& machine) {
  Json list = Json::array();
  for (const GemmBench& g : gemms)
    list.push_back({{"M", g.call.M},
                    {"K", g.call.K},
                    {"N", g.call.N},
                    {"transpose_a", g.call.transpose_a},
                    {"transpose_b", g.call.transpose_b},
                    {"accumulate", g.call.accumulate},
                    {"operands", precision_of(g.call.operands)},
                    {"result", precision_of(g.call.result)},
                    {"calls", g.calls},
                    {"seconds", g.seconds},
                    {"flops_per_second", speed_of(g)},
                    {"peak_fraction", speed_of(g) / machine.gemm_peak.at(g.call.operands)}});
  return list;
}

Json step_json(const StepBench& s, const MachineBench& machine) {
  Json ops = Json::array();
  for (const OpBench& op : s.ops) {
    const double least = floor_seconds(op, machine);
    ops.push_back({{"name", name_of(op.op)},
                   {"seconds", op.time.seconds},
                   {"share", op.time.seconds / s.split_seconds},
                   {"calls", op.time.calls},
                   {"bytes", op.time.bytes},
                   {"flops", total_flops(op)},
                   {"bytes_per_second", static_cast<double>(op.time.bytes) / op.time.seconds},
                   {"flops_per_second", total_flops(op) / op.time.seconds},
                   {"floor_seconds", least},
                   {"floor_fraction", least / op.time.seconds}});
  }
  const Budget b = budget_of(s);
  const std::optional<double> sheet = sheet_fraction(s, machine);
  return {{"precision", s.run.precision},
          {"optimizer", s.run.optimizer.name},
          {"preset", s.run.memory.preset},
          {"parameters", s.parameters},
          {"tokens", s.tokens},
          {"micro_batch", s.run.batch.micro_batch},
          {"sequence_length", s.run.data.sequence_length},
          {"step_seconds", s.step_seconds},
          {"split_seconds", s.split_seconds},
          {"tokens_per_second", static_cast<double>(s.tokens) / s.step_seconds},
          {"step_flops", s.step_flops},
          {"peak_fraction", peak_fraction(s, machine)},
          {"data_sheet_fraction", sheet ? Json(*sheet) : Json(nullptr)},
          {"peak_bytes", s.peak_bytes},
          {"resident_peak_bytes", s.resident_peak_bytes},
          {"device_bytes", s.device_bytes},
          {"graphs_recorded", s.graphs_recorded},
          {"budget",
           {{"gemm", b.gemm},
            {"attention", b.attention},
            {"other", b.other},
            {"optimizer", b.optimizer},
            {"waiting", b.outside}}},
          {"ops", ops},
          {"gemm_seconds", s.gemms.empty() ? Json(nullptr) : Json(s.gemm_seconds)},
          {"step_over_gemm", s.gemms.empty() ? Json(nullptr) : Json(s.step_seconds / s.gemm_seconds)},
          {"gemms", gemm_json(s.gemms, machine)}};
}

}  // namespace

std::string bench_text(const Bench& bench) {
  const MachineBench& m = bench.machine;
  std::string out = on_card(m) ? m.card : fmt::format("{}, {} threads", m.cpu, m.threads);
  out += fmt::format(": memory {:.1f} GB/s", m.bandwidth * 1e-9);
  for (const auto& [type, speed] : m.gemm_peak)
    out += fmt::format(", {} products {:.0f} GFLOP/s", precision_of(type), speed * 1e-9);
  out +=
      "\nof floor: the time that the memory's bandwidth or the products' peak allows, of the time taken "
      "(above 100 %: from a cache)\n";
  if (!bench.shapes.empty()) out += "\nmatrix products alone\n" + gemm_table(bench.shapes, m);
  for (const StepBench& step : bench.steps) out += "\n" + step_text(step, m);
  return out;
}

std::string bench_json(const Bench& bench) {
  const MachineBench& m = bench.machine;
  Json peaks;
  for (const auto& [type, speed] : m.gemm_peak) peaks[std::string(precision_of(type))] = speed;
  Json steps = Json::array();
  for (const StepBench& step : bench.steps) steps.push_back(step_json(step, m));
  const Json card = on_card(m) ? Json(m.card) : Json(nullptr);
  const Json sheet =
      m.data_sheet ? Json{{"bf16", m.data_sheet->bf16}, {"fp32", m.data_sheet->fp32}} : Json(nullptr);
  return Json{{"machine",
               {{"cpu", m.cpu},
                {"threads", m.threads},
                {"card", card},
                {"bytes_per_second", m.bandwidth},
                {"gemm_peak", peaks},
                {"data_sheet_peak", sheet}}},
              {"shapes", gemm_json(bench.shapes, m)},
              {"steps", steps}}
      .dump(2);
}

}  // namespace compact
