#include "compact/train/bench.h"

#include <cstdlib>

#include "cuda_emulation/fiber_order.h"
#include "engine_testing.h"

namespace compact::testing {
namespace {

// On both devices: the ops of a step are the plan's, and the parts of its time add up.
TEST(BenchSteps, AddUpAndAreThePlans) {
  char folder[] = "/tmp/compact_bench_XXXXXX";
  setenv("XDG_CACHE_HOME", mkdtemp(folder), 1);
  const ModelConfig model = small_model();
  for (const char* optimizer : {"adamw", "compact"}) {
    SCOPED_TRACE(optimizer);
    const RunConfig run = on_test_device(small_run(optimizer));
    const Bench bench = bench_run(run, model, {.repeats = 1, .steps_only = run.optimizer.name == "adamw"});
    ASSERT_EQ(bench.steps.size(), 1u);
    const StepBench& step = bench.steps[0];
    const RunPlan plan = plan_run(run, model);
    double seconds = step.outside_seconds, flops = 0;
    std::int64_t bytes = 0;
    for (const OpBench& op : step.ops) {
      seconds += op.time.seconds;
      bytes += op.time.bytes;
      for (const auto& [type, of_type] : op.flops) flops += of_type;
      EXPECT_GT(floor_seconds(op, bench.machine), 0);
    }
    EXPECT_GT(step.step_seconds, 0);
    EXPECT_NEAR(seconds, step.split_seconds, 1e-9);
    EXPECT_EQ(flops, static_cast<double>(plan.step_flops()));
    EXPECT_EQ(step.peak_bytes, plan.peak);
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(bench.machine.card.empty(), !on_cuda());
    // All steps of a window are one graph.
    EXPECT_EQ(step.graphs_recorded > 0, on_cuda());
    EXPECT_EQ(step.split_seconds == step.step_seconds, !on_cuda());
    EXPECT_EQ(step.gemms.empty(), run.optimizer.name == "adamw");
    const std::string text = bench_text(bench);
    if (!on_cuda() || is_emulated()) {  // a card may have a data sheet
      EXPECT_EQ(text.find("data sheet n/a") != std::string::npos, on_cuda()) << text;
    }
    EXPECT_NE(bench_json(bench).find("\"split_seconds\""), std::string::npos);
  }
  std::filesystem::remove_all(folder);
  unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace compact::testing
