#include "compact/train/bench.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "compact/kernels/elementwise.h"
#include "compact/kernels/gemm.h"
#include "compact/train/engine.h"
#include "compact/train/machine.h"
#include "compact/train/plan.h"

namespace compact {

namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double speed_of(const GemmBench& g) {
  const GemmCall& c = g.call;
  return 2.0 * static_cast<double>(c.M) * static_cast<double>(c.K) * static_cast<double>(c.N) / g.seconds;
}

// The products of one step: those of a micro-batch counted once for each, those of the update once.
std::map<GemmCall, std::int64_t> products_of(const RunConfig& run, const ModelConfig& model) {
  Arena arena(Device::Plan, Arena::kUnlimited);
  Engine engine(arena, run, model);
  std::vector<GemmCall> calls;
  engine.context().gemm_calls = &calls;
  StepBatch batch;
  batch.targets = 1;
  batch.sequences = run.batch.tokens_per_step / run.data.sequence_length;
  engine.step(*make_local_communicator(), batch, 0, 0.0);
  std::map<GemmCall, std::int64_t> counted;
  for (const GemmCall& call : calls) ++counted[call];
  return counted;
}

// Operands of the call's own shapes and strides in an arena of their own.
struct Product {
  explicit Product(const GemmCall& call_) : call(call_), arena(Device::Cpu, bytes(call_)), context(arena) {
    a = make(call.transpose_a ? call.K : call.M, call.transpose_a ? call.M : call.K, call.lda);
    b = make(call.transpose_b ? call.N : call.K, call.transpose_b ? call.K : call.N, call.ldb);
    c = make(call.M, call.N, call.ldc);
  }
  static std::int64_t bytes(const GemmCall& call) {
    const std::int64_t operands = (call.transpose_a ? call.K : call.M) * call.lda +
                                  (call.transpose_b ? call.N : call.K) * call.ldb + call.M * call.ldc;
    return 4 * operands + (std::int64_t{256} << 20);  // and room for oneDNN's scratchpad
  }
  Tensor make(std::int64_t rows, std::int64_t cols, std::int64_t ld) {
    const Tensor whole = arena.persistent("operand", {rows, ld}, DType::F32, Category::Workspace);
    fill(context, whole, 0.5f);
    return whole.columns(0, cols);
  }
  void run() {
    gemm(context, a, call.transpose_a ? Transpose::Yes : Transpose::No, b,
         call.transpose_b ? Transpose::Yes : Transpose::No, c, call.accumulate);
  }

  GemmCall call;
  Arena arena;
  Context context;
  Tensor a, b, c;
};

double time_product(const GemmCall& call, int repeats) {
  Product product(call);
  product.run();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const auto start = Clock::now();
    product.run();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return median(times);
}

StepBatch random_tokens(std::int64_t sequences, std::int64_t T, std::int64_t vocab_size) {
  StepBatch batch;
  batch.sequences = sequences;
  batch.targets = sequences * T;
  std::uint64_t x = 1;
  for (std::int64_t i = 0; i <= sequences * T; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    const auto id = static_cast<std::int32_t>((x >> 33) % static_cast<std::uint64_t>(vocab_size));
    if (i < sequences * T) batch.inputs.push_back(id);
    if (i > 0) batch.labels.push_back(id);
  }
  return batch;
}

}  // namespace

StepBench bench_step(const RunConfig& run, const ModelConfig& model, int repeats) {
  const RunPlan plan = plan_run(run, model);
  require_available(plan.peak, memory_table(plan.at_peak));
  StepBench bench;
  bench.threads = omp_get_max_threads();
  bench.step_flops = plan.step_flops();
  bench.tokens = run.batch.tokens_per_step;
  bench.peak_bytes = plan.peak;

  Arena arena(Device::Cpu, plan.peak);
  Engine engine(arena, run, model);
  engine.model().initialize(engine.context(), run.seed);
  const auto communicator = make_local_communicator();
  const StepBatch batch = random_tokens(run.batch.tokens_per_step / run.data.sequence_length,
                                        run.data.sequence_length, model.vocab_size);
  engine.step(*communicator, batch, 0, 1e-4);  // first touch of the memory, compilation of the products

  // Steps and products take turns, so that a noisy minute hits both.
  std::vector<double> steps, sums;
  std::map<GemmCall, std::vector<double>> times;
  const std::map<GemmCall, std::int64_t> products = products_of(run, model);
  for (int i = 0; i < repeats; ++i) {
    const auto start = Clock::now();
    engine.step(*communicator, batch, i + 1, 1e-4);
    steps.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    double sum = 0;
    for (const auto& [call, count] : products) {
      times[call].push_back(time_product(call, 3));
      sum += times[call].back() * static_cast<double>(count);
    }
    sums.push_back(sum);
  }
  bench.step_seconds = median(steps);
  bench.gemm_seconds = median(sums);
  for (const auto& [call, count] : products) bench.gemms.push_back({call, count, median(times[call])});
  std::stable_sort(bench.gemms.begin(), bench.gemms.end(), [](const GemmBench& a, const GemmBench& b) {
    return a.seconds * static_cast<double>(a.calls) > b.seconds * static_cast<double>(b.calls);
  });
  double fastest = 0;
  for (const GemmBench& g : bench.gemms) fastest = std::max(fastest, speed_of(g));
  bench.gemm_peak = gemm_peak(fastest);
  return bench;
}

std::string bench_text(const StepBench& b) {
  std::string out = fmt::format("{:>7} {:>7} {:>7}  {:<6} {:>6} {:>10} {:>9} {:>8}\n", "M", "K", "N", "kind",
                                "calls", "ms a call", "GFLOP/s", "of peak");
  for (const GemmBench& g : b.gemms) {
    const GemmCall& c = g.call;
    const double speed = speed_of(g);
    const std::string kind =
        std::string(c.transpose_a ? "T" : "N") + (c.transpose_b ? "T" : "N") + (c.accumulate ? "+" : "");
    out += fmt::format("{:>7} {:>7} {:>7}  {:<6} {:>6} {:>10.3f} {:>9.1f} {:>7.0f}%\n", c.M, c.K, c.N, kind,
                       g.calls, g.seconds * 1e3, speed * 1e-9, 100 * speed / b.gemm_peak);
  }
  return out + fmt::format(
                   "step {:.3f} s, {:.0f} tokens/s with {} threads; its matrix products alone {:.3f} s; step "
                   "/ products = "
                   "{:.2f}\n{:.0f} GFLOP/s, {:.0f} % of the machine's GEMM peak of {:.0f}; memory {}",
                   b.step_seconds, static_cast<double>(b.tokens) / b.step_seconds, b.threads, b.gemm_seconds,
                   b.step_seconds / b.gemm_seconds, static_cast<double>(b.step_flops) / b.step_seconds * 1e-9,
                   100 * static_cast<double>(b.step_flops) / b.step_seconds / b.gemm_peak, b.gemm_peak * 1e-9,
                   human_bytes(b.peak_bytes));
}

std::string bench_json(const StepBench& b) {
  nlohmann::ordered_json j = {{"step_seconds", b.step_seconds},
                              {"gemm_seconds", b.gemm_seconds},
                              {"step_over_gemm", b.step_seconds / b.gemm_seconds},
                              {"tokens_per_second", static_cast<double>(b.tokens) / b.step_seconds},
                              {"gemm_peak", b.gemm_peak},
                              {"step_flops", b.step_flops},
                              {"threads", b.threads},
                              {"peak_bytes", b.peak_bytes}};
  for (const GemmBench& g : b.gemms)
    j["gemms"].push_back({{"M", g.call.M},
                          {"K", g.call.K},
                          {"N", g.call.N},
                          {"transpose_a", g.call.transpose_a},
                          {"transpose_b", g.call.transpose_b},
                          {"accumulate", g.call.accumulate},
                          {"calls", g.calls},
                          {"seconds", g.seconds}});
  return j.dump(2);
}

}  // namespace compact
