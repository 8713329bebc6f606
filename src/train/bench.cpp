#include "compact/train/bench.h"

#include <omp.h>

#include <algorithm>
#include <chrono>

#include "bench_products.h"
#include "compact/train/cuda_device.h"
#include "compact/train/engine.h"
#include "compact/train/machine.h"
#include "compact/train/plan.h"

namespace compact {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
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

// One step and where its time went.
struct TimedStep {
  double seconds = 0;
  OpClock clock;
  std::int64_t attention_flops = 0;
};

// The step of median time: its ops add up to it, which medians of each would not.
void take_median_step(std::vector<TimedStep> steps, const StepProducts& products, StepBench& bench) {
  std::sort(steps.begin(), steps.end(),
            [](const TimedStep& a, const TimedStep& b) { return a.seconds < b.seconds; });
  const TimedStep& step = steps[steps.size() / 2];
  bench.split_seconds = bench.outside_seconds = step.seconds;
  const DType activation = llama_options(bench.run).types.activation;
  for (int i = 0; i < kOps; ++i) {
    OpBench op{static_cast<Op>(i), step.clock.of(static_cast<Op>(i)), {}};
    if (op.time.calls == 0) continue;
    if (op.op == Op::Gemm)
      for (const auto& [call, count] : products.calls)
        op.flops[call.operands] += GemmBench{call, 1, 0}.flops() * static_cast<double>(count);
    if (op.op == Op::Attention) op.flops[activation] = static_cast<double>(step.attention_flops);
    if (op.op == Op::Projection && products.projection_flops > 0)
      op.flops[activation] = products.projection_flops;
    if (op.op == Op::Optimizer && products.optimizer_flops > 0)
      op.flops[activation] = products.optimizer_flops;
    bench.outside_seconds -= op.time.seconds;
    bench.ops.push_back(op);
  }
  std::stable_sort(bench.ops.begin(), bench.ops.end(),
                   [](const OpBench& a, const OpBench& b) { return a.time.seconds > b.time.seconds; });
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Steps of one engine on the same random tokens.
class Steps {
 public:
  Steps(const RunConfig& run, const ModelConfig& model, std::int64_t bytes, cuda::Queue* queue)
      : queue_(queue),
        arena_(queue != nullptr ? Device::Cuda : Device::Cpu, bytes),
        communicator_(make_local_communicator()),
        engine_(arena_, run, model, *communicator_, queue),
        batch_(random_tokens(run.batch.tokens_per_step / run.data.sequence_length, run.data.sequence_length,
                             model.vocab_size)) {
    if (queue != nullptr) {
      cuda::QueueOptions options = queue->options();
      options.sync_checks = true;
      waiting_ = std::make_unique<cuda::Queue>(options);
    }
    engine_.initialize();
  }
  /// A step as a run takes it, in seconds.
  double whole() {
    const auto start = Clock::now();
    engine_.step(batch_, index_++, 1e-4);
    return seconds_since(start);
  }
  /// A step with a clock on its ops: on a CUDA device each launch is waited for.
  TimedStep split() {
    TimedStep step;
    Context& context = engine_.context();
    const std::int64_t attention_before = context.flops.attention;
    context.clock = &step.clock;
    if (waiting_) context.queue = waiting_.get();
    step.seconds = whole();
    context.queue = queue_;
    context.clock = nullptr;
    step.attention_flops = context.flops.attention - attention_before;
    return step;
  }

 private:
  cuda::Queue* queue_;
  std::unique_ptr<cuda::Queue> waiting_;
  Arena arena_;
  std::unique_ptr<Communicator> communicator_;
  Engine engine_;
  StepBatch batch_;
  std::int64_t index_ = 0;
};

StepBench bench_step(RunConfig run, const ModelConfig& model, const BenchOptions& options,
                     cuda::Queue* queue) {
  // On a CUDA device steps are timed whole and by their ops in turns.
  const int steps_a_repeat = queue != nullptr ? 2 : 1;
  run.train.steps =
      steps_a_repeat * (options.repeats + 1) + 1;  // long enough for a new P, or not: the plan needs to know
  const RunPlan plan = plan_run(run, model);
  require_memory(queue, plan.peak, memory_table(plan.at_peak));
  StepBench bench;
  bench.run = run;
  bench.parameters = plan.parameters;
  bench.step_flops = plan.step_flops();
  bench.tokens = run.batch.tokens_per_step;
  bench.peak_bytes = plan.peak;

  const auto free_bytes = [queue] {
    return queue != nullptr ? cuda::device_info(queue->options().device).free_memory : 0;
  };
  const std::int64_t free_before = free_bytes();
  Steps steps(run, model, plan.peak, queue);
  steps.whole();  // first touch of the memory, compilation of the products
  if (queue != nullptr) {
    steps.whole();  // recording of a graph
    steps.split();
  }

  // Steps and products take turns, so that a noisy minute hits both.
  const StepProducts products = products_of(run, model);
  std::vector<TimedStep> split;
  std::vector<double> whole, sums;
  std::map<GemmCall, std::vector<double>> times;
  for (int i = 0; i < options.repeats; ++i) {
    split.push_back(steps.split());
    whole.push_back(queue != nullptr ? steps.whole() : split.back().seconds);
    if (options.steps_only) continue;
    double sum = 0;
    for (const auto& [call, count] : products.calls) {
      times[call].push_back(time_product(call, 3, queue));
      sum += times[call].back() * static_cast<double>(count);
    }
    sums.push_back(sum);
  }
  bench.resident_peak_bytes = resident_peak_bytes();
  bench.device_bytes = free_before - free_bytes();
  if (queue != nullptr) bench.graphs_recorded = queue->graphs_recorded();
  bench.step_seconds = median(whole);
  take_median_step(std::move(split), products, bench);

  for (const auto& [call, seconds] : times)
    bench.gemms.push_back({call, products.calls.at(call), median(seconds)});
  if (!sums.empty()) bench.gemm_seconds = median(sums);
  std::stable_sort(bench.gemms.begin(), bench.gemms.end(), [](const GemmBench& a, const GemmBench& b) {
    return a.seconds * static_cast<double>(a.calls) > b.seconds * static_cast<double>(b.calls);
  });
  return bench;
}

// The machine's speeds: at least what the products and steps of `bench` have reached.
void take_speeds(const BenchOptions& options, Bench& bench, cuda::Queue* queue) {
  std::map<DType, double> seen;
  const auto see = [&](const GemmBench& g) {
    double& fastest = seen[g.call.operands];
    if (g.seconds > 0) fastest = std::max(fastest, g.flops() / g.seconds);
  };
  for (const GemmBench& g : bench.shapes) see(g);
  for (const StepBench& step : bench.steps) {
    for (const GemmBench& g : step.gemms) see(g);
    for (const OpBench& op : step.ops)
      for (const auto& [type, flops] : op.flops) seen.try_emplace(type, 0.0);
  }
  // A cached speed of a busy moment would flatter everything, so it is tried again beside the steps.
  const bool again = !options.steps_only;
  bench.machine.cpu = cpu_name();
  bench.machine.threads = omp_get_max_threads();
  if (queue != nullptr) {
    const cuda::DeviceInfo card = cuda::device_info(queue->options().device);
    bench.machine.card = cuda::describe(card);
    bench.machine.data_sheet = cuda::device_peaks(card.name);
  }
  bench.machine.bandwidth = memory_bandwidth(again ? measure_memory_bandwidth(queue) : 0, queue);
  for (const auto& [type, fastest] : seen)
    bench.machine.gemm_peak[type] =
        gemm_peak(type, std::max(fastest, again ? measure_gemm_peak(type, queue) : 0.0), queue);
}

}  // namespace

double floor_seconds(const OpBench& op, const MachineBench& machine) {
  double computing = 0;
  for (const auto& [type, flops] : op.flops) computing += flops / machine.gemm_peak.at(type);
  return std::max(computing, static_cast<double>(op.time.bytes) / machine.bandwidth);
}

Bench bench_run(const RunConfig& run, const ModelConfig& model, const BenchOptions& options) {
  const std::unique_ptr<cuda::Queue> queue = open_queue(run);
  Bench bench;
  bench.steps.push_back(bench_step(run, model, options, queue.get()));
  take_speeds(options, bench, queue.get());
  return bench;
}

Bench bench_machine(const BenchOptions& options) {
  ModelConfig model;
  model.vocab_size = 32000;
  model.hidden_size = 512;
  model.intermediate_size = 1376;
  model.layers = model.heads = model.kv_heads = 8;
  RunConfig run;
  run.device = options.device;
  const std::unique_ptr<cuda::Queue> queue = open_queue(run);
  const std::int64_t sequences = queue ? 32 : 8;
  run.batch = {sequences * run.data.sequence_length, sequences};
  Bench bench;
  for (const DType type : {DType::F32, DType::BF16}) {
    if (!options.steps_only)
      for (const GemmBench& shape : bench_shapes(type, options.repeats, queue.get()))
        bench.shapes.push_back(shape);
    run.precision = type == DType::BF16 ? "bf16" : "fp32";
    bench.steps.push_back(bench_step(run, model, options, queue.get()));
  }
  take_speeds(options, bench, queue.get());
  return bench;
}

}  // namespace compact
