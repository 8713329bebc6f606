#include <gtest/gtest.h>

#include <cmath>

#include "compact/core/error.h"
#include "compact/train/inference.h"
#include "compact/train/plan.h"

namespace compact {
namespace {

const std::vector<float> kLogits = {0.0f, 1.0f, 3.0f, 3.0f, -2.0f};

TEST(Sampling, ZeroTemperatureTakesTheFirstOfTheLikeliest) {
  SamplingOptions o;
  o.temperature = 0;
  for (std::uint32_t draw = 0; draw < 10; ++draw) EXPECT_EQ(sample(kLogits, o, draw), 2);
}

TEST(Sampling, FollowsTheSoftmax) {
  SamplingOptions o;
  o.temperature = 1.5;
  o.seed = 9;
  std::vector<double> counts(kLogits.size());
  constexpr std::uint32_t kDraws = 40000;
  for (std::uint32_t draw = 0; draw < kDraws; ++draw)
    ++counts[static_cast<std::size_t>(sample(kLogits, o, draw))];
  double total = 0;
  for (float l : kLogits) total += std::exp(static_cast<double>(l) / 1.5);
  for (std::size_t i = 0; i < kLogits.size(); ++i) {
    const double p = std::exp(static_cast<double>(kLogits[i]) / 1.5) / total;
    EXPECT_NEAR(counts[i] / kDraws, p, 5 * std::sqrt(p * (1 - p) / kDraws)) << i;
  }
}

TEST(Sampling, TopKLeavesOutTheRest) {
  SamplingOptions o;
  o.temperature = 100;
  o.top_k = 3;
  std::vector<int> counts(kLogits.size());
  for (std::uint32_t draw = 0; draw < 3000; ++draw)
    ++counts[static_cast<std::size_t>(sample(kLogits, o, draw))];
  EXPECT_EQ(counts[0], 0);
  EXPECT_EQ(counts[4], 0);
  for (int i : {1, 2, 3}) EXPECT_GT(counts[static_cast<std::size_t>(i)], 700);
  o.top_k = 100;  // more than there are: all
  EXPECT_NO_THROW(sample(kLogits, o, 0));
}

TEST(Sampling, IsAFunctionOfSeedAndDraw) {
  SamplingOptions a, b;
  b.seed = 1;
  int differ = 0;
  for (std::uint32_t draw = 0; draw < 100; ++draw) {
    EXPECT_EQ(sample(kLogits, a, draw), sample(kLogits, a, draw));
    differ += sample(kLogits, a, draw) != sample(kLogits, b, draw);
  }
  EXPECT_GT(differ, 10);
}

TEST(Fit, ReadsBytesWithUnits) {
  EXPECT_EQ(parse_bytes("1000", "--fit"), 1000);
  EXPECT_EQ(parse_bytes("8e9", "--fit"), 8000000000);
  EXPECT_EQ(parse_bytes("1.5 GiB", "--fit"), 1610612736);
  EXPECT_EQ(parse_bytes("512M", "--fit"), 512000000);
  for (const char* bad : {"", "lots", "-5", "5 parsecs", "nan", "inf", "1e30", "GiB", "0"})
    EXPECT_THROW(parse_bytes(bad, "--fit"), InputError) << bad;
}

}  // namespace
}  // namespace compact
