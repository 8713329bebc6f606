#include "compact/kernels/cross_entropy.h"

#include "compact/core/error.h"
#include "kernels/cross_entropy_cpu.h"
#include "unit/kernels/op_testing.h"

namespace compact {
namespace {

using testing::Bench;
using testing::same_bits;
using testing::values;

constexpr std::int64_t kMemory = std::int64_t{8} << 20;  // of a bench: the emulation fills all of it
constexpr DType kTypes[] = {DType::F32, DType::BF16};

/// Loss and gradient of every row in double.
struct Reference {
  std::vector<double> loss, gradient;
};

Reference reference(const Tensor& logits, const std::vector<std::int32_t>& labels, double scale) {
  Reference out;
  const std::vector<float> all = values(logits);
  for (std::int64_t i = 0; i < logits.rows(); ++i) {
    const float* x = all.data() + i * logits.cols();
    const std::int64_t V = logits.cols(), label = labels[static_cast<std::size_t>(i)];
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::int64_t j = 0; j < V; ++j) largest = std::max(largest, static_cast<double>(x[j]));
    for (std::int64_t j = 0; j < V; ++j) sum += std::exp(static_cast<double>(x[j]) - largest);
    const bool counted = label != kIgnoreIndex;
    out.loss.push_back(counted ? largest + std::log(sum) - static_cast<double>(x[label]) : 0);
    for (std::int64_t j = 0; j < V; ++j) {
      const double p = std::exp(static_cast<double>(x[j]) - largest) / sum;
      out.gradient.push_back(counted ? (p - (j == label ? 1 : 0)) * scale : 0);
    }
  }
  return out;
}

void check_numeric(const nlohmann::json& numeric) {
  const double tolerance = numeric["tolerance"]["fp32"];
  const auto& shape = numeric["inputs"]["logits"]["shape"];
  Bench bench(testing::test_device(), kMemory);
  const Tensor logits = bench.of({shape[0].get<std::int64_t>(), shape[1].get<std::int64_t>()},
                                 testing::numbers(numeric["inputs"]["logits"]));
  const Tensor labels = bench.ids(numeric["inputs"]["labels"]["data"].get<std::vector<std::int32_t>>());
  const Tensor loss = bench.make({logits.rows()}), again = bench.make({logits.rows()});
  cross_entropy_forward(bench.context, logits, labels, loss);
  // A divisor of 0 makes this infinite, which no ignored row may feel.
  const float scale = 1.0f / numeric["inputs"]["divisor"].get<float>();
  cross_entropy_backward(bench.context, logits, labels, scale, again);
  const auto& expected = numeric["expected"];
  testing::expect_close(loss, testing::numbers(expected["loss"]), tolerance,
                        testing::absolute_tolerance(numeric, "loss"), 1);
  testing::expect_close(logits, testing::numbers(expected["dlogits"]), tolerance,
                        testing::absolute_tolerance(numeric, "dlogits"));
  EXPECT_TRUE(same_bits(values(loss), values(again)));
  double sum = 0;
  for (const float x : values(loss)) sum += static_cast<double>(x);
  testing::expect_close({static_cast<float>(sum)}, {expected["loss_sum"].get<double>()}, 1, tolerance, 1e-3);
}

TEST(CrossEntropy, NumericCase) {
  COMPACT_NUMERIC_CASE(numeric, "cross_entropy");
  check_numeric(numeric);
}

TEST(CrossEntropy, NumericCaseExtreme) {
  COMPACT_NUMERIC_CASE(numeric, "cross_entropy_extreme");
  check_numeric(numeric);
}

TEST(CrossEntropy, NumericCaseAllMasked) {
  COMPACT_NUMERIC_CASE(numeric, "cross_entropy_all_masked");
  check_numeric(numeric);
}

void expect_plain_loops(std::int64_t V, std::int64_t padding, DType type) {
  SCOPED_TRACE(fmt::format("V {} padding {} {}", V, padding, name_of(type)));
  Bench bench(testing::test_device(), kMemory);
  const std::int64_t n = 5;
  const Tensor logits = bench.strided({n, V}, padding, type);
  Bench::randomize(logits, static_cast<std::uint32_t>(V), 4);
  const std::vector<std::int32_t> labels = {0, static_cast<std::int32_t>(V - 1), kIgnoreIndex,
                                            static_cast<std::int32_t>(V / 2), 0};
  const Tensor loss = bench.make({n}), forward = bench.make({n});
  const Reference want = reference(logits, labels, 0.25);
  const std::vector<float> before = values(logits);
  cross_entropy_forward(bench.context, logits, bench.ids(labels), forward);
  EXPECT_TRUE(same_bits(values(logits), before));
  cross_entropy_backward(bench.context, logits, bench.ids(labels), 0.25f, loss);
  testing::expect_close(loss, want.loss, 1e-6, 1e-6, 1);
  // 1 - p of a likely label is as good as 1 is in fp32.
  const double absolute = 0.25 * 1.2e-7;
  if (type == DType::F32) {
    testing::expect_close(logits, want.gradient, 1e-6, absolute);
  } else {
    // Each element by itself: those of a row differ by many powers of two, and each is half a unit of its
    // last place away at most.
    testing::expect_close(values(logits), want.gradient, 1, 0x1.01p-9, absolute);
  }
  EXPECT_TRUE(same_bits(values(loss), values(forward)));
  EXPECT_EQ(loss.f32()[2], 0.0f);
  for (const float x : values(logits.row_range(2, 1))) ASSERT_EQ(x, 0.0f);
  testing::expect_padding_untouched(logits, padding);
}

TEST(CrossEntropy, AgreesWithPlainLoops) {
  // One logit, vector tails, the 64 running sums, real vocabularies, more than a CUDA block keeps; rows of a
  // wider matrix.
  for (const std::int64_t V : {1, 2, 15, 17, 63, 64, 65, 1000, 32000, 32003, 70000})
    for (const std::int64_t padding : {0, 3, 8})
      for (const DType type : kTypes) expect_plain_loops(V, padding, type);
}

TEST(CrossEntropy, WhereRowsLieChangesNoBit) {
  for (const DType type : kTypes)
    for (const std::int64_t V : {1000, 1003}) {
      const auto run = [&](std::int64_t padding) {
        Bench bench(testing::test_device(), kMemory);
        const Tensor logits = bench.strided({3, V}, padding, type), loss = bench.make({3});
        Bench::randomize(logits, 1, 3);
        cross_entropy_backward(bench.context, logits, bench.ids({0, 9, 999}), 0.5f, loss);
        std::vector<float> all = values(logits);
        for (const float x : values(loss)) all.push_back(x);
        return all;
      };
      EXPECT_TRUE(same_bits(run(3), run(0)));
    }
}

TEST(CrossEntropy, ExtremeBf16Logits) {
  COMPACT_NUMERIC_CASE(numeric, "cross_entropy_extreme");
  Bench bench(testing::test_device(), kMemory);
  const auto& shape = numeric["inputs"]["logits"]["shape"];
  const Tensor logits = bench.as(bench.of({shape[0].get<std::int64_t>(), shape[1].get<std::int64_t>()},
                                          testing::numbers(numeric["inputs"]["logits"])),
                                 DType::BF16);
  const auto labels = numeric["inputs"]["labels"]["data"].get<std::vector<std::int32_t>>();
  const Tensor loss = bench.make({logits.rows()});
  const Reference want = reference(logits, labels, 0.5);
  cross_entropy_backward(bench.context, logits, bench.ids(labels), 0.5f, loss);
  testing::expect_close(loss, want.loss, 1e-6, 1e-6, 1);
  testing::expect_close(logits, want.gradient, 0x1.01p-9);
}

TEST(CrossEntropy, TheSmallestBf16ProbabilitiesAreZero) {
  Bench bench(testing::test_device(), kMemory);
  const Tensor logits = bench.of({1, 4}, std::vector<float>{0, -60, -80, -2000}),
               half = bench.as(logits, DType::BF16), loss = bench.make({1});
  cross_entropy_backward(bench.context, half, bench.ids({0}), 1, loss);
  const std::vector<float> got = values(half);
  EXPECT_NEAR(static_cast<double>(got[1]) / std::exp(-60), 1, 0x1p-8);
  EXPECT_EQ(got[2], 0.0f);
  EXPECT_EQ(got[3], 0.0f);
}

TEST(CrossEntropy, GradientIsThatOfTheLoss) {
  Bench bench(testing::test_device(), kMemory);
  const Tensor logits = bench.random({4, 37}, 1, 2), labels = bench.ids({3, 36, kIgnoreIndex, 0});
  const Tensor loss = bench.make({4}), work = bench.make({4, 37});
  testing::set_values(work, values(logits));
  cross_entropy_backward(bench.context, work, labels, 1.0f / 3, loss);
  testing::expect_gradient(logits, values(work), [&] {
    cross_entropy_forward(bench.context, logits, labels, loss);
    double sum = 0;
    for (const float x : values(loss)) sum += static_cast<double>(x);
    return sum / 3;
  });
}

TEST(CrossEntropy, TheLargestLogitMayStandAnywhere) {
  for (const std::int32_t at : {0, 1, 63, 64, 127, 128, 129}) {
    Bench bench(testing::test_device(), kMemory);
    const Tensor logits = bench.random({1, 130}, 1), loss = bench.make({1});
    logits.f32()[at] = 3000;
    const Reference want = reference(logits, {5}, 1);
    cross_entropy_backward(bench.context, logits, bench.ids({5}), 1, loss);
    testing::expect_close(loss, want.loss, 1e-6);
    testing::expect_close(logits, want.gradient, 1e-6);
  }
}

TEST(CrossEntropy, NonFiniteLogitsShowInTheLoss) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), __builtin_nanf("0x155"), inf})
    for (const std::int64_t at : {0, 7, 63, 64, 129}) {
      Bench bench(testing::test_device(), kMemory);
      const Tensor logits = bench.random({1, 130}, 1), loss = bench.make({1});
      logits.f32()[at] = bad;
      cross_entropy_forward(bench.context, logits, bench.ids({2}), loss);
      EXPECT_FALSE(std::isfinite(loss.f32()[0])) << bad << " at " << at;
    }
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), inf})
    for (const std::int64_t at : {0, 7, 63, 64, 129}) {
      Bench bench(testing::test_device(), kMemory);
      const Tensor logits = bench.random({1, 130}, 1, 1, DType::BF16), loss = bench.make({1});
      Bench::set(logits, at, bad);
      cross_entropy_backward(bench.context, logits, bench.ids({2}), 1, loss);
      EXPECT_FALSE(std::isfinite(loss.f32()[0])) << bad << " at " << at;
    }
  // A logit of -inf is a probability of 0, no error.
  Bench bench(testing::test_device(), kMemory);
  const Tensor logits = bench.random({1, 130}, 1), loss = bench.make({1});
  logits.f32()[0] = -inf;
  cross_entropy_backward(bench.context, logits, bench.ids({2}), 1, loss);
  EXPECT_TRUE(std::isfinite(loss.f32()[0]));
  EXPECT_EQ(logits.f32()[0], 0.0f);
}

TEST(CrossEntropy, SameBitsForAnyThreads) {
  for (const DType type : kTypes) {
    Bench bench(testing::test_device(), kMemory);
    // Enough of them that threads are in their rows at the same time.
    const Tensor logits = bench.make({60, 8009}, type), loss = bench.make({60});
    std::vector<std::int32_t> label_of(60, 8008);
    label_of[3] = kIgnoreIndex;
    const Tensor labels = bench.ids(label_of);
    testing::expect_same_bits_for_any_threads([&] {
      Bench::randomize(logits, 3, 3);
      cross_entropy_backward(bench.context, logits, labels, 0.1f, loss);
      std::vector<float> out = values(logits);
      for (const float x : values(loss)) out.push_back(x);
      return out;
    });
  }
}

template <typename T>
void expect_same_on_both_instruction_sets(DType type) {
  Bench bench(testing::test_device(), kMemory);
  const Tensor a = bench.random({3, 1001}, 1, 3, type), b = bench.random({3, 1001}, 1, 3, type),
               labels = bench.ids({0, 9, 1000});
  const Tensor loss_a = bench.make({3}), loss_b = bench.make({3});
  float* const terms = bench.make({omp_get_max_threads(), 1001}).f32();
  cpu::avx2::cross_entropy_rows(a.as<T>(), a.ld, labels.i32(), 3, 1001, true, 0.5f, terms, loss_a.f32());
  cpu::avx512::cross_entropy_rows(b.as<T>(), b.ld, labels.i32(), 3, 1001, true, 0.5f, terms, loss_b.f32());
  EXPECT_TRUE(same_bits(values(a), values(b)) && same_bits(values(loss_a), values(loss_b)));
}

TEST(CrossEntropy, SameBitsOnEveryInstructionSet) {
  if (testing::on_cuda()) GTEST_SKIP() << "about the CPU's loops";
  if (cpu_isa() != Isa::Avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  expect_same_on_both_instruction_sets<float>(DType::F32);
  expect_same_on_both_instruction_sets<Bf16>(DType::BF16);
}

TEST(CrossEntropy, PlanEqualsRun) {
  for (const DType type : kTypes)
    testing::expect_plan_equals_run([&](Bench& bench) {
      const Tensor logits = bench.random({2, 70}, 1, 1, type), loss = bench.make({2});
      cross_entropy_forward(bench.context, logits, bench.ids({0, 69}), loss);
      cross_entropy_backward(bench.context, logits, bench.ids({0, 69}), 1, loss);
    });
}

TEST(CrossEntropy, PlansAndRefuses) {
  Bench plan(Device::Plan);
  const Tensor planned = plan.make({2, 5}, DType::BF16);
  cross_entropy_forward(plan.context, planned, plan.ids({0, 1}), plan.make({2}));
  cross_entropy_backward(plan.context, planned, plan.ids({0, 1}), 1, plan.make({2}));
  Bench bench(testing::test_device(), kMemory);
  const Tensor logits = bench.random({2, 5}, 1), loss = bench.make({2});
  for (const std::int32_t label : {5, -1, -101}) {
    if (testing::on_cuda()) {  // where the host cannot read labels, the loss shows it
      cross_entropy_forward(bench.context, logits, bench.ids({0, label}), loss);
      EXPECT_TRUE(std::isfinite(loss.f32()[0]) && std::isnan(loss.f32()[1])) << label;
    } else {
      EXPECT_THROW(cross_entropy_forward(bench.context, logits, bench.ids({0, label}), loss),
                   std::logic_error);
    }
  }
  EXPECT_THROW(cross_entropy_forward(bench.context, logits, bench.ids({0}), loss), std::logic_error);
  EXPECT_THROW(cross_entropy_forward(bench.context, logits, bench.ids({0, 1}), bench.make({3})),
               std::logic_error);
}

}  // namespace
}  // namespace compact
