#include "compact/kernels/elementwise.h"

#include "unit/kernels/op_testing.h"

namespace compact {
namespace {
using namespace testing;

const Shape kShapes[] = {{1, 1}, {3, 7}, {2, 33}, {300, 129}};

TEST(Elementwise, ZeroAndFillReachAllOfAViewAndNothingElse) {
  for (const Shape& shape : kShapes)
    for (std::int64_t padding : {0, 5}) {
      Bench bench;
      const Tensor x = bench.strided(shape, padding);
      const auto n = static_cast<std::size_t>(x.elements());
      zero(bench.context, x);
      EXPECT_TRUE(same_bits(values(x), std::vector<float>(n, 0.0f)));
      fill(bench.context, x, -1.5f);
      EXPECT_TRUE(same_bits(values(x), std::vector<float>(n, -1.5f)));
      expect_padding_untouched(x, padding);
    }
}

TEST(Elementwise, ZeroTakesIntegers) {
  Bench bench;
  const Tensor x = bench.ids({1, 2, 3});
  zero(bench.context, x);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(x.i32()[i], 0);
}

TEST(Elementwise, CopyAndAddTakeViews) {
  for (const Shape& shape : kShapes) {
    Bench bench;
    const Tensor a = bench.strided(shape, 2), b = bench.random(shape, 2), out = bench.strided(shape, 3);
    bench.randomize(a, 1);
    copy(bench.context, a, out);
    EXPECT_TRUE(same_bits(values(out), values(a)));
    std::vector<float> want = values(a);
    const std::vector<float> added = values(b);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += added[i];
    add(bench.context, a, b, out);
    EXPECT_TRUE(same_bits(values(out), want));
    expect_padding_untouched(out, 3);
    add(bench.context, a, b, a);  // in place
    EXPECT_TRUE(same_bits(values(a), want));
    expect_padding_untouched(a, 2);
  }
}

TEST(Elementwise, PlanEqualsRunAndBf16IsPlannedOnly) {
  expect_plan_equals_run([](Bench& bench) {
    const Tensor a = bench.random({4, 5}, 1), b = bench.random({4, 5}, 2);
    add(bench.context, a, b, a);
    copy(bench.context, a, b);
    zero(bench.context, a);
    fill(bench.context, a, 1);
  });
  expect_bf16_is_planned_only([](Bench& bench, DType t) { zero(bench.context, bench.make({2, 2}, t)); });
  expect_bf16_is_planned_only([](Bench& bench, DType t) { fill(bench.context, bench.make({2, 2}, t), 1); });
  expect_bf16_is_planned_only([](Bench& bench, DType t) {
    const Tensor a = bench.make({2, 2}, t);
    copy(bench.context, a, a);
  });
  expect_bf16_is_planned_only([](Bench& bench, DType t) {
    const Tensor a = bench.make({2, 2}, t);
    add(bench.context, a, a, a);
  });
}

TEST(Elementwise, RefusesShapesThatDiffer) {
  Bench bench;
  const Tensor a = bench.make({2, 3}), b = bench.make({3, 2});
  EXPECT_THROW(add(bench.context, a, b, a), std::logic_error);
  EXPECT_THROW(copy(bench.context, a, b), std::logic_error);
}

}  // namespace
}  // namespace compact
