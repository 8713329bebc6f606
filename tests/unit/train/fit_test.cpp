#include <gtest/gtest.h>

#include "compact/train/plan.h"

namespace compact {
namespace {

struct Small {
  Small() {
    model.vocab_size = 500;
    model.hidden_size = 32;
    model.intermediate_size = 88;
    model.layers = 3;
    model.heads = model.kv_heads = 4;
    run.data.sequence_length = 16;
    run.batch = {16 * 12, 12};
    run.optimizer.name = "compact";
    run.train.steps = 10;
  }
  RunConfig run;
  ModelConfig model;
};

// The search looks at few of all variants; none that it skipped may be better than what it found.
TEST(Fit, FindsTheBestOfAllVariants) {
  const Small small;
  std::vector<RunPlan> all;
  for (const std::int64_t micro : {12, 6, 4, 3, 2, 1})
    for (const char* preset : {"paper", "lean", "tight", "block"}) {
      const std::int64_t whole = 4 * 500 * 16 * micro;
      for (std::int64_t chunk = whole; chunk >= whole / 256 && chunk >= 2000; chunk /= 4) {
        RunConfig run = small.run;
        run.batch.micro_batch = micro;
        run.memory = {preset, chunk};
        all.push_back(plan_run(run, small.model));
      }
    }
  std::int64_t least = INT64_MAX, most = 0;
  for (const RunPlan& plan : all) {
    least = std::min(least, plan.peak);
    most = std::max(most, plan.peak);
  }
  for (int i = 0; i <= 20; ++i) {
    const std::int64_t budget = least + (most - least) * i / 20;
    const FittingRun found = fit_run(small.run, small.model, budget);
    ASSERT_TRUE(found.fits) << budget;
    EXPECT_LE(found.plan.peak, budget);
    EXPECT_EQ(plan_run(found.run, small.model).peak, found.plan.peak);
    for (const RunPlan& plan : all)
      if (plan.peak <= budget) {
        EXPECT_LE(found.plan.cost(), plan.cost()) << budget;
      }
  }
  const FittingRun none = fit_run(small.run, small.model, least - 1);
  EXPECT_FALSE(none.fits);
  EXPECT_LE(none.plan.peak, least);
}

TEST(Fit, AStepOfOneMicroBatchCountsLikeOneOfMany) {
  Small small;
  const RunPlan one = plan_run(small.run, small.model);
  small.run.batch.micro_batch = 3;
  const RunPlan four = plan_run(small.run, small.model);
  EXPECT_EQ(one.micro_batches, 1);
  EXPECT_EQ(four.micro_batches, 4);
  EXPECT_EQ(one.step_flops(), four.step_flops());
  EXPECT_EQ(one.update.gemm, four.update.gemm);
  EXPECT_LT(one.step_bytes(), four.step_bytes()) << "weights are read once a micro-batch";
}

TEST(Fit, PerLayerUpdatesArePlanned) {
  Small small;
  const RunPlan per_step = plan_run(small.run, small.model);
  small.run.optimizer.update = "per_layer";
  const RunPlan per_layer = plan_run(small.run, small.model);
  EXPECT_EQ(per_layer.step_flops(), per_step.step_flops());
  EXPECT_EQ(per_layer.update.gemm, per_step.update.gemm);
  EXPECT_LT(per_layer.peak, per_step.peak);
}

}  // namespace
}  // namespace compact
