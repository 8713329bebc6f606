#include "compact/kernels/global_norm.h"

#include "compact/core/error.h"
#include "kernels/global_norm_cpu.h"
#include "unit/kernels/op_testing.h"

namespace compact {
namespace {

using testing::Bench;
using testing::values;

constexpr std::int64_t kMemory = std::int64_t{8} << 20;  // of a bench: the emulation fills all of it
float norm_of(Bench& bench, const std::vector<Tensor>& tensors) {
  const Tensor norm = bench.make({1});
  global_norm(bench.context, tensors, norm);
  return norm.f32()[0];
}

TEST(GlobalNorm, NumericCaseClip) {
  COMPACT_NUMERIC_CASE(numeric, "clip");
  const double tolerance = numeric["tolerance"]["fp32"];
  Bench bench(testing::test_device(), kMemory);
  std::vector<Tensor> gradients;
  for (const auto& g : numeric["inputs"]["gradients"]) {
    const std::vector<double> data = testing::numbers(g);
    gradients.push_back(bench.of({static_cast<std::int64_t>(data.size())}, data));
  }
  const float norm = norm_of(bench, gradients);
  testing::expect_close({norm}, {numeric["expected"]["norm"].get<double>()}, 1, tolerance);
  for (const auto& [name, max_norm] :
       {std::pair{"max_norm_1", 1.0}, {"max_norm_0.25", 0.25}, {"max_norm_100", 100.0}}) {
    const auto& expected = numeric["expected"]["clipped"][name];
    const float scale = clip_scale(static_cast<double>(norm), max_norm);
    testing::expect_close({scale}, {expected["scale"].get<double>()}, 1, tolerance);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      std::vector<float> clipped = values(gradients[i]);
      for (float& g : clipped) g *= scale;
      testing::expect_close(clipped, testing::numbers(expected["gradients"][i]),
                            static_cast<std::int64_t>(clipped.size()), tolerance);
    }
  }

  const auto zeros = std::vector<double>(numeric["inputs"]["zero"]["elements"].get<std::size_t>(), 0.0);
  EXPECT_EQ(norm_of(bench, {bench.of({6}, zeros)}), 0.0f);
  EXPECT_EQ(clip_scale(0, 1), 1.0f);
  const auto& big = numeric["inputs"]["big"];
  const std::vector<double> large(big["elements"].get<std::size_t>(), big["value"].get<double>());
  testing::expect_close({norm_of(bench, {bench.of({100}, large)})},
                        {numeric["expected"]["big"]["norm"].get<double>()}, 1, tolerance);
  for (const auto& row : numeric["inputs"]["non_finite"]) {
    const std::vector<double> data = testing::numbers({{"data", row}});
    EXPECT_FALSE(std::isfinite(norm_of(bench, {bench.of({2}, data)})));
  }
}

TEST(GlobalNorm, IsTheRootOfTheSumOfSquares) {
  // Around the 32 running sums, around one piece of 4096, and beyond 256 pieces of it.
  for (const std::int64_t n : {1, 31, 32, 33, 4095, 4096, 4097, 100001, 256 * 4096 + 7}) {
    Bench bench(testing::test_device(), kMemory);
    const std::vector<Tensor> tensors = {bench.random({n}, 1), bench.random({3, 5}, 2),
                                         bench.random({n}, 3, 2, DType::BF16)};
    double want = 0;
    for (const Tensor& t : tensors)
      for (const float x : values(t)) want += static_cast<double>(x) * static_cast<double>(x);
    testing::expect_close({norm_of(bench, tensors)}, {std::sqrt(want)}, 1, 1e-7);
  }
}

TEST(GlobalNorm, EveryElementCounts) {
  for (const DType type : {DType::F32, DType::BF16}) {
    Bench bench(testing::test_device(), kMemory);
    const Tensor x = bench.make({9001}, type);
    for (std::int64_t i = 0; i < 9001; i += 97) {
      std::memset(x.data, 0, static_cast<std::size_t>(x.bytes()));
      Bench::set(x, i, -3.0f);
      ASSERT_EQ(norm_of(bench, {x}), 3.0f) << i;
      Bench::set(x, i, std::numeric_limits<float>::quiet_NaN());
      ASSERT_TRUE(std::isnan(norm_of(bench, {x}))) << i;
      Bench::set(x, i, -std::numeric_limits<float>::infinity());
      ASSERT_FALSE(std::isfinite(norm_of(bench, {x}))) << i;
    }
  }
}

TEST(GlobalNorm, TakesManyTensorsOfAnySizeAndPlace) {
  Bench bench(testing::test_device(), kMemory);
  const Tensor all = bench.random({70000}, 1), half = bench.random({70000}, 2, 1, DType::BF16);
  std::vector<Tensor> tensors;
  double want = 0;
  for (std::int64_t at = 0, i = 0; i < 140; ++i) {
    const std::int64_t size = i % 7 == 3 ? 0 : i == 77 ? 40000 : 1 + i % 90;
    tensors.push_back((i % 2 == 0 ? all : half).slice(at, size));
    for (const float x : values(tensors.back())) want += static_cast<double>(x) * static_cast<double>(x);
    at += size;
  }
  testing::expect_close({norm_of(bench, tensors)}, {std::sqrt(want)}, 1, 1e-7);
}

TEST(GlobalNorm, PlanEqualsRun) {
  testing::expect_plan_equals_run([](Bench& bench) {
    const std::vector<Tensor> tensors = {bench.random({70001}, 1), bench.random({3}, 2, 1, DType::BF16)};
    global_norm(bench.context, tensors, bench.make({1}));
  });
}

TEST(GlobalNorm, OfNothingIsZero) {
  Bench bench(testing::test_device(), kMemory);
  EXPECT_EQ(norm_of(bench, {}), 0.0f);
  EXPECT_EQ(norm_of(bench, {bench.make({0, 4})}), 0.0f);
}

TEST(GlobalNorm, ClipScaleAtTheLimit) {
  EXPECT_EQ(clip_scale(1.0, 1.0), 1.0f);
  EXPECT_EQ(clip_scale(2.0, 1.0), 0.5f);
  EXPECT_EQ(clip_scale(0.5, 1.0), 1.0f);
}

TEST(GlobalNorm, SameBitsForAnyThreads) {
  Bench bench(testing::test_device(), kMemory);
  const std::vector<Tensor> tensors = {bench.random({100003}, 1), bench.random({77, 13}, 2),
                                       bench.random({50001}, 3, 1, DType::BF16)};
  testing::expect_same_bits_for_any_threads([&] { return std::vector<float>{norm_of(bench, tensors)}; });
}

TEST(GlobalNorm, SameBitsOnEveryInstructionSet) {
  if (testing::on_cuda()) GTEST_SKIP() << "about the CPU's loops";
  if (cpu_isa() != Isa::Avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  Bench bench(testing::test_device(), kMemory);
  const Tensor x = bench.random({100003}, 1);
  EXPECT_EQ(cpu::avx2::sum_of_squares(x.f32(), x.elements()),
            cpu::avx512::sum_of_squares(x.f32(), x.elements()));
  const Tensor half = bench.as(x, DType::BF16);
  EXPECT_EQ(cpu::avx2::sum_of_squares(half.as<Bf16>(), half.elements()),
            cpu::avx512::sum_of_squares(half.as<Bf16>(), half.elements()));
}

TEST(GlobalNorm, PlansAndRefuses) {
  Bench plan(Device::Plan);
  global_norm(plan.context, std::vector<Tensor>{plan.make({7}, DType::BF16)}, plan.make({1}));
  Bench bench(testing::test_device(), kMemory);
  EXPECT_THROW(norm_of(bench, {bench.ids({7})}), std::logic_error);
  EXPECT_THROW(norm_of(bench, {bench.make({7, 4}).columns(0, 2)}), std::logic_error);
  EXPECT_THROW(global_norm(bench.context, {}, bench.make({2})), std::logic_error);
}

}  // namespace
}  // namespace compact
