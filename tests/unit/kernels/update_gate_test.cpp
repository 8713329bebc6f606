#include "compact/kernels/update_gate.h"

#include "compact/kernels/global_norm.h"
#include "unit/kernels/op_testing.h"

namespace compact {
namespace {
using namespace testing;

constexpr std::int64_t kMemory = std::int64_t{8} << 20;  // of a bench: the emulation fills all of it
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A gate with what it judges.
struct Gate {
  explicit Gate(Bench& bench_) : bench(bench_) { open_gate(bench.context, squares, gate); }
  void judge(double at_loss, float at_norm, double max_norm = 1) {
    *loss.as<double>() = at_loss;
    norm.f32()[0] = at_norm;
    update_gate(bench.context, loss, norm, max_norm, squares, gate);
  }
  float scale() const { return gate.f32()[0]; }
  bool open() const { return gate.f32()[1] == 1.0f; }
  float count() const { return gate.f32()[2]; }

  Bench& bench;
  Tensor loss = bench.make({1}, DType::F64), norm = bench.make({1}), squares = bench.make({1}, DType::F64),
         gate = bench.make({3});
};

TEST(UpdateGate, IsOpenedAndCountsFiniteSteps) {
  Bench bench(test_device(), kMemory);
  Gate gate(bench);
  EXPECT_TRUE(gate.open());
  EXPECT_EQ(gate.scale(), 1.0f);
  EXPECT_EQ(gate.count(), 0.0f);
  EXPECT_EQ(*gate.squares.as<double>(), 0.0);
  gate.judge(3, 0.5f);
  EXPECT_EQ(gate.scale(), 1.0f);
  EXPECT_EQ(gate.count(), 1.0f);
  gate.judge(3, 3.0f);
  EXPECT_EQ(gate.scale(), clip_scale(3, 1));
  gate.judge(3, 3.0f, 0);  // no clipping
  EXPECT_EQ(gate.scale(), 1.0f);
  EXPECT_EQ(gate.count(), 3.0f);
  EXPECT_TRUE(gate.open());
  EXPECT_EQ(*gate.squares.as<double>(), 18.25);
}

TEST(UpdateGate, ClosesAtWhatIsNotFiniteUntilOpenedAnew) {
  for (const auto& [loss, norm] : {std::pair{kNaN, 1.0},
                                   {kInf, 1.0},
                                   {-kInf, 1.0},
                                   {1.0, kNaN},
                                   {1.0, kInf},
                                   {-kInf, kInf},
                                   {kInf, kInf}}) {
    SCOPED_TRACE(fmt::format("loss {} norm {}", loss, norm));
    Bench bench(test_device(), kMemory);
    Gate gate(bench);
    gate.judge(2, 4.0f);
    gate.judge(loss, static_cast<float>(norm));
    EXPECT_FALSE(gate.open());
    EXPECT_EQ(std::isfinite(*gate.squares.as<double>()), std::isfinite(norm));
    gate.judge(2, 4.0f);
    EXPECT_FALSE(gate.open());
    EXPECT_EQ(gate.count(), 1.0f);
    open_gate(bench.context, gate.squares, gate.gate);
    gate.judge(2, 4.0f);
    EXPECT_TRUE(gate.open());
    EXPECT_EQ(gate.count(), 1.0f);
    EXPECT_EQ(gate.scale(), 0.25f);
    EXPECT_EQ(*gate.squares.as<double>(), 16.0);
  }
}

TEST(AddSum, AddsTheSumInDouble) {
  // Around one block's elements, one piece, and beyond the pieces that are made at most.
  for (const std::int64_t n : {0, 1, 255, 256, 257, 2048, 2049, 100003, 256 * 2048 + 13}) {
    Bench bench(test_device(), kMemory);
    const Tensor x = bench.random({n}, 1), total = bench.make({1}, DType::F64);
    *total.as<double>() = 1e6;
    double want = 1e6;
    for (const float v : values(x)) want += static_cast<double>(v);
    add_sum(bench.context, x, total);
    EXPECT_NEAR(*total.as<double>(), want, 1e-8) << n;
    *total.as<double>() = 1;
    if (n > 0) x.f32()[n - 1] = 1e30f;
    add_sum(bench.context, x, total);
    EXPECT_NEAR(*total.as<double>(), n > 0 ? static_cast<double>(1e30f) : 1, 1e15) << n;
  }
}

TEST(AddSum, EveryElementCountsOnce) {
  Bench bench(test_device(), kMemory);
  const std::int64_t n = 5000;
  const Tensor x = bench.make({n}), total = bench.make({1}, DType::F64);
  std::fill_n(x.f32(), n, 0.0f);
  for (std::int64_t i = 0; i < n; i += 71) {
    x.f32()[i] = 2;
    *total.as<double>() = 0.5;
    add_sum(bench.context, x, total);
    ASSERT_EQ(*total.as<double>(), 2.5) << i;
    x.f32()[i] = 0;
  }
}

TEST(AddSum, IsTheSameForAnyThreads) {
  Bench bench(test_device(), kMemory);
  const Tensor x = bench.random({30011}, 1), total = bench.make({1}, DType::F64);
  expect_same_bits_for_any_threads([&] {
    *total.as<double>() = 0;
    add_sum(bench.context, x, total);
    std::vector<float> bits(2);
    std::memcpy(bits.data(), total.data, sizeof(double));
    return bits;
  });
}

TEST(UpdateGate, PlanEqualsRun) {
  expect_plan_equals_run([](Bench& bench) {
    const Tensor x = bench.random({70000}, 1), total = bench.make({1}, DType::F64),
                 squares = bench.make({1}, DType::F64), gate = bench.make({3});
    open_gate(bench.context, squares, gate);
    add_sum(bench.context, x, total);
    update_gate(bench.context, total, x.slice(0, 1), 1, squares, gate);
  });
}

TEST(UpdateGate, RefusesWrongShapesAndTypes) {
  Bench bench(test_device(), kMemory);
  const Tensor one = bench.make({1}), three = bench.make({3}), total = bench.make({1}, DType::F64);
  EXPECT_THROW(add_sum(bench.context, bench.make({3}, DType::BF16), total), std::logic_error);
  EXPECT_THROW(add_sum(bench.context, three, one), std::logic_error);
  EXPECT_THROW(add_sum(bench.context, bench.make({3, 4}).columns(0, 2), total), std::logic_error);
  EXPECT_THROW(open_gate(bench.context, total, one), std::logic_error);
  EXPECT_THROW(open_gate(bench.context, one, three), std::logic_error);
  EXPECT_THROW(update_gate(bench.context, one, one, 1, total, three), std::logic_error);
  EXPECT_THROW(update_gate(bench.context, total, three, 1, total, three), std::logic_error);
  EXPECT_THROW(update_gate(bench.context, total, one, -1, total, three), std::logic_error);
}

}  // namespace
}  // namespace compact
