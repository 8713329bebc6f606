#include "compact/optim/schedule.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "compact/train/run_config.h"

namespace compact {
namespace {

TEST(Schedule, CosineIsThePublishedRuns) {
  const std::string path = COMPACT_SOURCE_DIR "/../shared/cases/numeric/schedule_cosine.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const nlohmann::json file = nlohmann::json::parse(std::ifstream(path));
  int checked = 0;
  for (const auto& run : file["expected"]["runs"]) {
    const std::int64_t steps = run["steps"];
    const std::int64_t warmup = Period{10, Period::Unit::Percent}.steps(steps, 1);
    EXPECT_EQ(warmup, run["warmup_steps"]);
    const Schedule schedule(
        {.name = "cosine", .peak = 0.01, .steps = steps, .warmup_steps = warmup, .final_fraction = 0.1});
    for (std::size_t i = 0; i < run["update"].size(); ++i, ++checked) {
      const double want = run["lr"][i];
      EXPECT_NEAR(schedule.lr(run["update"][i]), want, 1e-6 * want)
          << steps << " steps, update " << run["update"][i];
    }
  }
  EXPECT_GT(checked, 40);
}

TEST(Schedule, CosineByHand) {
  const Schedule s({.name = "cosine", .peak = 2, .steps = 12, .warmup_steps = 4, .final_fraction = 0.5});
  EXPECT_EQ(s.lr(0), 0);
  EXPECT_EQ(s.lr(1), 0.5);
  EXPECT_EQ(s.lr(4), 2);
  EXPECT_NEAR(s.lr(8), 1.5, 1e-15);
  EXPECT_NEAR(s.lr(12), 1, 1e-15);
  EXPECT_NEAR(s.lr(1000), 1, 1e-15);
}

TEST(Schedule, Linear) {
  const Schedule s({.name = "linear", .peak = 2, .steps = 12, .warmup_steps = 4, .final_fraction = 0.5});
  EXPECT_EQ(s.lr(2), 1);
  EXPECT_EQ(s.lr(4), 2);
  EXPECT_EQ(s.lr(6), 1.75);
  EXPECT_EQ(s.lr(12), 1);
  EXPECT_EQ(s.lr(13), 1);
}

TEST(Schedule, WarmUpStableDecay) {
  const Schedule s(
      {.name = "wsd", .peak = 2, .steps = 20, .warmup_steps = 4, .decay_steps = 8, .final_fraction = 0});
  EXPECT_EQ(s.lr(0), 0);
  EXPECT_EQ(s.lr(4), 2);
  EXPECT_EQ(s.lr(12), 2);
  EXPECT_EQ(s.lr(13), 1.75);
  EXPECT_EQ(s.lr(20), 0);
  EXPECT_EQ(s.lr(21), 0);
}

TEST(Schedule, RefusesWhatDoesNotFit) {
  EXPECT_THROW(Schedule({.name = "cosin", .peak = 1, .steps = 4}), std::logic_error);
  EXPECT_THROW(Schedule({.name = "cosine", .peak = 1, .steps = 4, .warmup_steps = 5}), std::logic_error);
  EXPECT_THROW(Schedule({.name = "wsd", .peak = 1, .steps = 4, .warmup_steps = 2, .decay_steps = 3}),
               std::logic_error);
}

TEST(Schedule, Constant) {
  const Schedule s({.name = "constant", .peak = 2, .steps = 10, .warmup_steps = 2, .final_fraction = 0.1});
  EXPECT_EQ(s.lr(1), 1);
  EXPECT_EQ(s.lr(2), 2);
  EXPECT_EQ(s.lr(10), 2);
  EXPECT_EQ(s.lr(100), 2);
}

TEST(Schedule, WarmUpOverTheWholeRun) {
  for (const char* name : {"cosine", "linear", "wsd", "constant"}) {
    const Schedule s(
        {.name = name, .peak = 1, .steps = 4, .warmup_steps = 4, .decay_steps = 0, .final_fraction = 0.1});
    EXPECT_EQ(s.lr(3), 0.75) << name;
    EXPECT_EQ(s.lr(4), 1) << name;  // the published formula: x = 0 / max(1, 0)
  }
}

TEST(Schedule, DescribesItself) {
  EXPECT_EQ(
      Schedule({.name = "cosine", .peak = 0.01, .steps = 1000, .warmup_steps = 100, .final_fraction = 0.1})
          .describe(),
      "cosine over 1000 steps: 100 of warm-up to 0.01, then down to 0.001");
  EXPECT_EQ(Schedule({.name = "wsd", .peak = 1, .steps = 10, .warmup_steps = 1, .decay_steps = 3}).describe(),
            "wsd over 10 steps: 1 of warm-up to 1, flat to step 7, then down to 0");
}

}  // namespace
}  // namespace compact
