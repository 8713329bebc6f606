#include "compact/kernels/rope.h"

#include "unit/kernels/op_testing.h"

namespace compact {
namespace {
using namespace testing;

constexpr DType kTypes[] = {DType::F32, DType::BF16};

/// x [N, cols] turned by plain loops in double.
std::vector<double> plain_rope(const std::vector<float>& x, std::int64_t cols, std::int64_t T,
                               std::int64_t first, std::int64_t D, double base, double sign) {
  std::vector<double> out(x.size());
  for (std::int64_t n = 0; n * cols < static_cast<std::int64_t>(x.size()); ++n)
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t i = c % D % (D / 2), head = c / D * D;
      const double angle = sign * static_cast<double>(first + n % T) *
                           std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(D));
      const auto at = [&](std::int64_t i_) { return static_cast<double>(x[static_cast<std::size_t>(i_)]); };
      const double low = at(n * cols + head + i), high = at(n * cols + head + i + D / 2);
      out[static_cast<std::size_t>(n * cols + c)] = c % D < D / 2
                                                        ? low * std::cos(angle) - high * std::sin(angle)
                                                        : high * std::cos(angle) + low * std::sin(angle);
    }
  return out;
}

TEST(Rope, EqualsPlainLoops) {
  const std::int64_t sizes[][4] = {{1, 1, 1, 2},  {2, 3, 3, 6},  {1, 17, 2, 34}, {3, 40, 5, 64},
                                   {2, 9, 8, 16}, {1, 5, 7, 32}, {1, 5, 2, 128}};  // B, T, heads, D
  Bench bench;
  for (const auto& [B, T, heads, D] : sizes)
    for (const auto& [first, padding] : {std::pair<std::int64_t, std::int64_t>{0, 8}, {7, 3}, {7, 8}})
      for (Rotation direction : {Rotation::Forward, Rotation::Backward})
        for (DType type : kTypes) {
          const Tensor x = bench.strided({B * T, heads * D}, padding, type),
                       table = bench.make({first + T, D});
          bench.randomize(x, 1);
          const std::vector<double> want =
              plain_rope(values(x), x.cols(), T, first, D, 10000, direction == Rotation::Forward ? 1 : -1);
          rope_table(bench.context, 10000, table);
          rope(bench.context, x, T, first, table, direction);
          expect_close(x, want, type == DType::BF16 ? 0x1.01p-9 : 1e-6);
          expect_padding_untouched(x, padding);
        }
}

TEST(Rope, PositionZeroChangesNoBit) {
  Bench bench;
  for (DType type : kTypes) {
    const Tensor x = bench.as(
        bench.of({1, 8}, std::vector<float>{-0.0f, 0.0f, 1e-40f, NAN, 0.0f, -0.0f, 3.0f, INFINITY}), type);
    const Tensor table = bench.make({1, 8});
    const std::vector<float> before = values(x);
    rope_table(bench.context, 10000, table);
    rope(bench.context, x, 1, 0, table, Rotation::Forward);
    rope(bench.context, x, 1, 0, table, Rotation::Backward);
    EXPECT_TRUE(same_bits(values(x), before));
  }
}

TEST(Rope, GradientEqualsDifferenceQuotient) {
  Bench bench;
  const Tensor x = bench.random({10, 24}, 1), y = bench.make({10, 24}), table = bench.make({5, 8}),
               dx = bench.make({10, 24});
  rope_table(bench.context, 100, table);
  const std::vector<float> weights = random_values(240, 2);
  set_values(dx, weights);
  rope(bench.context, dx, 5, 0, table, Rotation::Backward);
  expect_gradient(x, values(dx), [&] {
    set_values(y, values(x));
    rope(bench.context, y, 5, 0, table, Rotation::Forward);
    return dot(values(y), weights);
  });
}

TEST(Rope, IsTheSameForAnyThreads) {
  for (DType type : kTypes) {
    Bench bench;
    const Tensor x = bench.make({300, 128}, type), table = bench.make({150, 64});
    expect_same_bits_for_any_threads([&] {
      bench.randomize(x, 1);
      rope_table(bench.context, 10000, table);
      rope(bench.context, x, 150, 0, table, Rotation::Forward);
      return values(x);
    });
  }
}

TEST(Rope, NumericCase) {
  COMPACT_NUMERIC_CASE(numeric, "rope");
  const nlohmann::json& in = numeric["inputs"];
  const double tolerance = numeric["tolerance"]["fp32"];
  const auto positions = in["positions"].get<std::vector<std::int64_t>>();
  const std::int64_t heads = in["x"]["shape"][1], D = in["x"]["shape"][2];
  for (const nlohmann::json& base : in["bases"]) {
    Bench bench;
    const nlohmann::json& expected = numeric["expected"][fmt::format("base_{}", base.get<int>())];
    const Tensor table = bench.make({512, D});
    rope_table(bench.context, base, table);
    for (const auto& [from, to, direction] :
         {std::tuple("x", "y", Rotation::Forward), std::tuple("dy", "dx", Rotation::Backward)}) {
      const Tensor x = bench.of({static_cast<std::int64_t>(positions.size()), heads * D}, numbers(in[from]));
      for (std::size_t i = 0; i < positions.size(); ++i)
        rope(bench.context, x.row_range(static_cast<std::int64_t>(i), 1), 1, positions[i], table, direction);
      expect_close(x, numbers(expected[to]), tolerance, absolute_tolerance(numeric, to), D);
    }
  }
}

TEST(Rope, PlanEqualsRun) {
  for (DType type : kTypes)
    expect_plan_equals_run([&](Bench& bench) {
      const Tensor table = bench.make({5, 8});
      rope_table(bench.context, 10000, table);
      rope(bench.context, bench.random({10, 16}, 1, 1, type), 5, 0, table, Rotation::Forward);
    });
}

TEST(Rope, RefusesWhatTheTableDoesNotHold) {
  Bench bench;
  const Tensor x = bench.random({10, 16}, 1), table = bench.make({5, 8});
  EXPECT_THROW(rope(bench.context, x, 5, 1, table, Rotation::Forward), std::logic_error);
  EXPECT_THROW(rope(bench.context, x, 3, 0, table, Rotation::Forward), std::logic_error);
  EXPECT_THROW(rope(bench.context, bench.make({10, 12}), 5, 0, table, Rotation::Forward), std::logic_error);
}

}  // namespace
}  // namespace compact
