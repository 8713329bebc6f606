#include "compact/train/plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>

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

}  // namespace

RunPlan plan_run(const RunConfig& run, const ModelConfig& model, int ranks, int rank) {
  Arena arena(Device::Plan, Arena::kUnlimited, run.device == "cuda" ? Device::Cuda : Device::Cpu);
  const auto communicator = make_plan_communicator(rank, ranks);
  Engine engine(arena, run, model, *communicator);
  RunPlan plan;
  plan.ranks = ranks;
  const std::int64_t B = run.batch.micro_batch;
  const std::int64_t sequences = rank_sequences(run, ranks);
  plan.micro_batches = (sequences + B - 1) / B;

  if (!run.data.val.empty()) engine.evaluate({}, {}, 0);
  OpClock clock;
  engine.context().clock = &clock;
  StepBatch batch;
  const auto work_of_step = [&](std::int64_t micro_batches, std::int64_t targets) {
    const Work before = work_so_far(engine.context());
    batch.sequences = micro_batches * B;
    batch.targets = targets;
    engine.step(batch, 0, 0.0);
    return minus(work_so_far(engine.context()), before);
  };
  const Work one = work_of_step(1, 1);
  plan.wire_bytes = communicator->wire_bytes();  // only the last micro-batch sends
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
    engine.step(batch, run.compact.update_gap, 0.0);
  }
  plan.peak = arena.ledger().peak();
  plan.at_peak = arena.ledger().at_peak();
  plan.live = arena.ledger().live_at_peak();

  if (run.device == "cuda") plan.ops_per_byte = run.precision == "bf16" ? 200 : 14;
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

}  // namespace compact
