#include "compact/kernels/elementwise.h"

#include "kernels/elementwise_cuda.h"
#include "unit/kernels/op_testing.h"

namespace compact {
namespace {
using namespace testing;

// The last ones are cut into pieces that threads share. Multiples of 8 are moved in vectors on a CUDA device,
// also in a view with 8 columns of padding.
const Shape kShapes[] = {{1, 1},     {3, 7},  {2, 33},    {7, 8},   {50, 64},
                         {300, 129}, {40001}, {2, 20003}, {3, 8200}};
constexpr DType kTypes[] = {DType::F32, DType::BF16};

/// The element that holds `x`.
float rounded(float x, DType type) { return type == DType::BF16 ? to_float(nearest_bf16(x)) : x; }

TEST(Elementwise, ZeroAndFillReachAllOfAViewAndNothingElse) {
  Bench bench;
  for (const Shape& shape : kShapes)
    for (std::int64_t padding : {0, 5, 8})
      for (DType type : kTypes) {
        const Tensor x = bench.strided(shape, padding, type);
        const auto n = static_cast<std::size_t>(x.elements());
        zero(bench.context, x);
        EXPECT_TRUE(same_bits(values(x), std::vector<float>(n, 0.0f)));
        fill(bench.context, x, -1.7f);
        EXPECT_TRUE(same_bits(values(x), std::vector<float>(n, rounded(-1.7f, type))));
        expect_padding_untouched(x, padding);
      }
}

TEST(Elementwise, ZeroTakesIntegers) {
  Bench bench;
  const Tensor x = bench.ids({1, 2, 3});
  zero(bench.context, x);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(x.i32()[i], 0);
}

TEST(Elementwise, ZeroTakesSumsInDouble) {
  Bench bench;
  const Tensor x = bench.make({3, 5}, DType::F64).columns(1, 3);
  zero(bench.context, x);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) EXPECT_EQ(x.as<double>()[i * x.ld + j], 0.0);
    EXPECT_TRUE(std::isnan(x.as<double>()[i * x.ld - 1]) && std::isnan(x.as<double>()[i * x.ld + 3]));
  }
}

TEST(Elementwise, CopyTakesViewsAndConverts) {
  Bench bench;
  for (const Shape& shape : kShapes)
    for (std::int64_t padding : {0, 2, 8})
      for (DType from : kTypes)
        for (DType to : kTypes) {
          const Tensor a = bench.strided(shape, padding, from), out = bench.strided(shape, padding, to);
          bench.randomize(a, 1);
          copy(bench.context, a, out);
          std::vector<float> want = values(a);
          for (float& x : want) x = rounded(x, to);
          EXPECT_TRUE(same_bits(values(out), want));
          expect_padding_untouched(out, padding);
        }
}

TEST(Elementwise, CopyBetweenEqualTypesKeepsEveryBit) {
  Bench bench;
  const Tensor x = bench.make({65536}, DType::BF16), y = bench.make({65536}, DType::BF16);
  for (int i = 0; i < 65536; ++i) x.as<Bf16>()[i].bits = static_cast<std::uint16_t>(i);
  copy(bench.context, x, y);
  EXPECT_EQ(std::memcmp(x.data, y.data, static_cast<std::size_t>(x.bytes())), 0);
}

TEST(Elementwise, AddTakesViews) {
  Bench bench;
  for (const Shape& shape : kShapes)
    for (std::int64_t padding : {0, 2, 8})
      for (DType type : kTypes) {
        const Tensor a = bench.strided(shape, padding, type), b = bench.random(shape, 2, 1, type),
                     out = bench.strided(shape, padding, type);
        bench.randomize(a, 1);
        std::vector<float> want = values(a);
        const std::vector<float> added = values(b);
        for (std::size_t i = 0; i < want.size(); ++i) want[i] = rounded(want[i] + added[i], type);
        add(bench.context, a, b, out);
        EXPECT_TRUE(same_bits(values(out), want));
        expect_padding_untouched(out, padding);
        add(bench.context, a, b, a);  // in place
        EXPECT_TRUE(same_bits(values(a), want));
        expect_padding_untouched(a, padding);
      }
}

TEST(Elementwise, CudaScalesViews) {
  if (!on_cuda()) GTEST_SKIP() << "about the CUDA device";
  Bench bench;
  for (const Shape& shape : kShapes)
    for (std::int64_t padding : {0, 2, 8}) {
      const Tensor x = bench.strided(shape, padding);
      bench.randomize(x, 1);
      std::vector<float> want = values(x);
      for (float& v : want) v *= 0.3f;
      cuda::scale(*bench.queue, x, 0.3f);
      EXPECT_TRUE(same_bits(values(x), want));
      expect_padding_untouched(x, padding);
    }
}

TEST(Elementwise, IsTheSameForAnyThreads) {
  Bench bench;
  const Tensor a = bench.random({50021}, 1), b = bench.make({50021}, DType::BF16);
  expect_same_bits_for_any_threads([&] {
    copy(bench.context, a, b);
    add(bench.context, b, b, b);
    return values(b);
  });
}

TEST(Elementwise, FillNormalInBf16IsThatOfF32Rounded) {
  Bench bench;
  for (const Shape& shape : {Shape{3, 1}, Shape{5, 63}, Shape{2, 130}}) {
    const Tensor x = bench.make(shape), y = bench.make(shape, DType::BF16);
    fill_normal(bench.context, x, 0.02f, 77, 5);
    fill_normal(bench.context, y, 0.02f, 77, 5);
    EXPECT_TRUE(same_bits(values(y), values(bench.as(x, DType::BF16))));
  }
}

TEST(Elementwise, PlanEqualsRun) {
  for (DType type : kTypes)
    expect_plan_equals_run([&](Bench& bench) {
      const Tensor a = bench.random({4, 5}, 1, 1, type), b = bench.random({4, 5}, 2, 1, type);
      add(bench.context, a, b, a);
      copy(bench.context, a, b);
      zero(bench.context, a);
      fill(bench.context, a, 1);
    });
}

TEST(Elementwise, RefusesShapesAndTypesThatDiffer) {
  Bench bench;
  const Tensor a = bench.make({2, 3}), b = bench.make({3, 2});
  EXPECT_THROW(add(bench.context, a, b, a), std::logic_error);
  EXPECT_THROW(copy(bench.context, a, b), std::logic_error);
  EXPECT_THROW(add(bench.context, a, a, bench.make({2, 3}, DType::BF16)), std::logic_error);
}

}  // namespace
}  // namespace compact
