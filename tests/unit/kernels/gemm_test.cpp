#include "compact/kernels/gemm.h"

#include "kernels/gemm_cuda.h"
#include "unit/kernels/op_testing.h"

namespace compact {
namespace {
using namespace testing;

/// op(A) op(B) + C by plain loops in double; all values row-major as stored.
std::vector<double> plain_product(const Tensor& a, bool ta, const Tensor& b, bool tb, const Tensor& c,
                                  bool add) {
  const std::int64_t M = c.rows(), N = c.cols(), K = ta ? a.rows() : a.cols();
  const auto at = [](const Tensor& t, std::int64_t i, std::int64_t j) {
    return static_cast<double>(t.dtype == DType::BF16 ? to_float(t.as<Bf16>()[i * t.ld + j])
                                                      : t.f32()[i * t.ld + j]);
  };
  std::vector<double> out;
  for (std::int64_t i = 0; i < M; ++i)
    for (std::int64_t j = 0; j < N; ++j) {
      double sum = add ? at(c, i, j) : 0;
      for (std::int64_t k = 0; k < K; ++k)
        sum += (ta ? at(a, k, i) : at(a, i, k)) * (tb ? at(b, j, k) : at(b, k, j));
      out.push_back(sum);
    }
  return out;
}

Transpose transpose(bool yes) { return yes ? Transpose::Yes : Transpose::No; }

void check_product(Bench& bench, std::int64_t M, std::int64_t N, std::int64_t K, bool ta, bool tb, bool add,
                   std::int64_t padding, DType operands = DType::F32, DType result = DType::F32) {
  SCOPED_TRACE(fmt::format("M {} N {} K {} transposed {} {} accumulate {} padding {} {} to {}", M, N, K, ta,
                           tb, add, padding, name_of(operands), name_of(result)));
  const Tensor a = bench.strided(ta ? Shape{K, M} : Shape{M, K}, padding, operands);
  const Tensor b = bench.strided(tb ? Shape{N, K} : Shape{K, N}, padding, operands);
  const Tensor c = bench.strided({M, N}, padding, result);
  bench.randomize(a, 1);
  bench.randomize(b, 2);
  if (add) bench.randomize(c, 3);
  const std::vector<double> want = plain_product(a, ta, b, tb, c, add);
  bench.context.flops = {};
  gemm(bench.context, a, transpose(ta), b, transpose(tb), c, add);
  // Products of bf16 numbers are exact in fp32 and accumulate there: only a bf16 result is rounded.
  const double rounded = result == DType::BF16 ? 0x1p-8 : 0;
  expect_close(c, want, 2e-6 * std::sqrt(static_cast<double>(K)) + 1e-6 + rounded, 1e-5);
  expect_padding_untouched(c, padding);
  EXPECT_EQ(bench.context.flops.gemm, 2 * M * N * K);
  EXPECT_EQ(bench.context.flops.attention, 0);
}

TEST(Gemm, EqualsPlainLoopsForAllForms) {
  const std::int64_t sizes[][3] = {{1, 1, 1},    {1, 19, 33},  {17, 1, 5},   {5, 9, 1},
                                   {1, 1, 40},   {1, 40, 1},   {40, 1, 1},   {2, 3, 4},
                                   {33, 31, 65}, {64, 48, 32}, {129, 7, 100}};
  Bench bench;
  for (const auto& s : sizes)
    for (int form = 0; form < 8; ++form)
      for (std::int64_t padding : {0, 3})
        check_product(bench, s[0], s[1], s[2], form & 1, form & 2, form & 4, padding);
}

TEST(Gemm, Bf16EqualsPlainLoopsForAllForms) {
  const std::int64_t sizes[][3] = {{1, 1, 1},    {1, 19, 33},  {17, 1, 5},   {5, 9, 1},
                                   {1, 1, 40},   {1, 40, 1},   {40, 1, 1},   {2, 3, 4},
                                   {33, 31, 65}, {64, 48, 32}, {129, 7, 100}};
  Bench bench;
  for (const auto& s : sizes)
    for (int form = 0; form < 8; ++form)
      for (std::int64_t padding : {0, 3})
        for (DType result : {DType::F32, DType::BF16})
          check_product(bench, s[0], s[1], s[2], form & 1, form & 2, form & 4, padding, DType::BF16, result);
}

// Sizes that are computed in pieces: a wide transposed A, and a long inner dimension.
TEST(Gemm, PiecesEqualPlainLoops) {
  Bench bench;
  for (DType operands : {DType::F32, DType::BF16})
    for (DType result : {DType::F32, operands})
      for (bool add : {false, true}) {
        check_product(bench, 1403, 5, 33, true, false, add, 3, operands, result);
        check_product(bench, 701, 3, 9, true, true, add, 0, operands, result);
        check_product(bench, 3, 5, 16385, false, false, add, 1, operands, result);
        check_product(bench, 2, 3, 24577, false, true, add, 0, operands, result);
      }
}

TEST(Gemm, ProductsThatDifferInOneStrideDoNotShareAPrimitive) {
  Bench bench;
  const Tensor a = bench.random({9, 20}, 1), b = bench.random({20, 11}, 2);
  for (std::int64_t padding : {0, 1, 2}) {
    const Tensor wide_a = bench.strided({9, 20}, padding), wide_b = bench.strided({20, 11}, padding),
                 wide_c = bench.strided({9, 11}, padding), c = bench.make({9, 11});
    set_values(wide_a, values(a));
    set_values(wide_b, values(b));
    const std::vector<double> want = plain_product(a, false, b, false, c, false);
    gemm(bench.context, wide_a, Transpose::No, b, Transpose::No, c, false);
    expect_close(c, want, 1e-5, 1e-5);
    gemm(bench.context, a, Transpose::No, wide_b, Transpose::No, c, false);
    expect_close(c, want, 1e-5, 1e-5);
    gemm(bench.context, a, Transpose::No, b, Transpose::No, wide_c, false);
    expect_close(wide_c, want, 1e-5, 1e-5);
    expect_padding_untouched(wide_c, padding);
  }
}

TEST(Gemm, TakesEmptyDimensions) {
  Bench bench;
  const Tensor c = bench.random({3, 4}, 1);
  const std::vector<float> before = values(c);
  // An inner size of 0: the empty sum.
  gemm(bench.context, bench.make({3, 0}), Transpose::No, bench.make({0, 4}), Transpose::No, c, true);
  EXPECT_TRUE(same_bits(values(c), before));
  gemm(bench.context, bench.make({0, 3}), Transpose::Yes, bench.make({4, 0}), Transpose::Yes, c, false);
  EXPECT_TRUE(same_bits(values(c), std::vector<float>(12, 0.0f)));
  gemm(bench.context, bench.make({0, 5}), Transpose::No, bench.make({5, 4}), Transpose::No,
       bench.make({0, 4}), false);
  gemm(bench.context, bench.make({3, 5}), Transpose::No, bench.make({5, 0}), Transpose::No,
       bench.make({3, 0}), false);
  EXPECT_EQ(bench.context.flops.gemm, 0);
}

TEST(Gemm, GivesTheSameBitsEachTime) {
  for (DType dtype : {DType::F32, DType::BF16}) {
    Bench bench;
    const Tensor a = bench.random({130, 70}, 1, 1, dtype), b = bench.random({90, 70}, 2, 1, dtype),
                 c = bench.make({130, 90}, dtype);
    gemm(bench.context, a, Transpose::No, b, Transpose::Yes, c, false);
    const std::vector<float> first = values(c);
    for (int i = 0; i < 3; ++i) {
      gemm(bench.context, a, Transpose::No, b, Transpose::Yes, c, false);
      EXPECT_TRUE(same_bits(values(c), first));
    }
  }
}

TEST(Gemm, PlanEqualsRun) {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (DType operands : {DType::F32, DType::BF16})
        expect_plan_equals_run([&](Bench& bench) {
          for (DType result : {DType::F32, operands}) {
            const Tensor a = bench.random(ta ? Shape{70, 130} : Shape{130, 70}, 1, 1, operands),
                         b = bench.random(tb ? Shape{90, 70} : Shape{70, 90}, 2, 1, operands),
                         c = bench.make({130, 90}, result);
            gemm(bench.context, a, transpose(ta), b, transpose(tb), c, ta);
            gemm(bench.context, bench.random({2, 20000}, 1, 1, operands), Transpose::No,
                 bench.random(tb ? Shape{3, 20000} : Shape{20000, 3}, 2, 1, operands), transpose(tb),
                 bench.make({2, 3}, result), false);
          }
        });
}

TEST(Gemm, PlanHasTheWorkspaceOfACudaProduct) {
  Arena arena(Device::Plan, Arena::kUnlimited, Device::Cuda);
  Context context(arena);
  const Tensor x = arena.persistent("x", {16, 16}, DType::BF16, Category::Weights);
  gemm(context, x, Transpose::No, x, Transpose::Yes, x, false);
  EXPECT_EQ(arena.ledger().peak() - x.bytes(), cuda::kGemmWorkspace);
}

TEST(Gemm, CudaLooksForAnAlgorithmOnce) {
  if (!on_cuda()) GTEST_SKIP() << "about the CUDA device";
  Bench bench;
  const auto looked_for = [&](const Tensor& a, const Tensor& b, const Tensor& c, bool add) {
    const std::int64_t before = cuda::products_known(*bench.queue);
    gemm(bench.context, a, Transpose::No, b, Transpose::Yes, c, add);
    return cuda::products_known(*bench.queue) - before;
  };
  // A size that no other test has.
  const Tensor a = bench.random({37, 40}, 1), b = bench.random({41, 40}, 2), c = bench.random({37, 41}, 3);
  EXPECT_EQ(looked_for(a, b, c, false), 1);
  EXPECT_EQ(looked_for(a, b, c, false), 0);
  EXPECT_EQ(looked_for(bench.random({37, 40}, 4), b, bench.make({37, 41}), false), 0);
  EXPECT_EQ(looked_for(a, b, c, true), 1);
  EXPECT_EQ(looked_for(a, b, bench.strided({37, 41}, 1), false), 1);
  // Only the alignment differs: 4 bytes, then 16.
  const Tensor wide = bench.random({37, 48}, 5);
  EXPECT_EQ(looked_for(wide.columns(1, 40), b, c, false), 1);
  EXPECT_EQ(looked_for(wide.columns(4, 40), b, c, false), 1);
  EXPECT_EQ(looked_for(wide.columns(3, 40), b, c, false), 0);
}

TEST(Gemm, CudaRoundsToTf32OnlyWhereAsked) {
  if (!on_cuda()) GTEST_SKIP() << "about the CUDA device";
  cuda::Queue queue({.graph = false, .sync_checks = true, .tf32 = true});
  Bench bench;
  Context tf32(bench.arena, &queue);
  const Tensor a = bench.random({64, 64}, 1), b = bench.random({64, 64}, 2), exact = bench.make({64, 64}),
               rounded = bench.make({64, 64});
  gemm(bench.context, a, Transpose::No, b, Transpose::No, exact, false);
  gemm(tf32, a, Transpose::No, b, Transpose::No, rounded, false);
  EXPECT_FALSE(same_bits(values(exact), values(rounded)));
  expect_close(rounded, plain_product(a, false, b, false, rounded, false), 4e-3);
  // BF16 operands have fewer bits than TF32: the same product.
  const Tensor x = bench.as(a, DType::BF16), y = bench.as(b, DType::BF16);
  gemm(bench.context, x, Transpose::No, y, Transpose::No, exact, false);
  gemm(tf32, x, Transpose::No, y, Transpose::No, rounded, false);
  EXPECT_TRUE(same_bits(values(exact), values(rounded)));
}

TEST(Gemm, CudaStepsRepeatAProduct) {
  if (!on_cuda()) GTEST_SKIP() << "about the CUDA device";
  cuda::Queue queue({.graph = true});
  Bench bench;
  Context context(bench.arena, &queue);
  const Tensor a = bench.make({20, 30}), b = bench.random({30, 10}, 1), c = bench.make({20, 10}),
               d = bench.make({20, 10});
  for (std::uint32_t step = 0; step < 3; ++step) {
    bench.randomize(a, 2 + step);
    queue.step([&] { gemm(context, a, Transpose::No, b, Transpose::No, c, false); });
    queue.wait();
    expect_close(c, plain_product(a, false, b, false, c, false), 1e-5, 1e-5);
  }
  EXPECT_EQ(queue.graphs_recorded(), 1);
  // Another product is another graph, also where only the place of a result differs.
  for (int i = 0; i < 2; ++i) {
    queue.step([&] { gemm(context, a, Transpose::No, b, Transpose::No, d, false); });
    queue.wait();
    EXPECT_TRUE(same_bits(values(d), values(c)));
  }
  EXPECT_EQ(queue.graphs_recorded(), 2);
}

TEST(Gemm, CudaWithoutAnAlgorithmNamesTheProduct) {
  if (!on_cuda() || !is_emulated()) GTEST_SKIP() << "an address that would stop a card";
  Bench bench;
  const Tensor b = bench.random({8, 8}, 1, 1, DType::BF16), c = bench.make({4, 8}, DType::BF16);
  Tensor odd = bench.make({5, 8}, DType::BF16).row_range(0, 4);
  odd.data = odd.as<char>() + 1;
  try {
    gemm(bench.context, odd, Transpose::No, b, Transpose::No, c, false);
    FAIL() << "a product of elements at odd addresses";
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("[4, 8] x [8, 8] of BF16 to BF16"), std::string::npos)
        << error.what();
  }
}

TEST(Gemm, RefusesSizesThatDoNotMatch) {
  Bench bench;
  const Tensor a = bench.make({4, 8}), b = bench.make({8, 6}), c = bench.make({4, 6});
  EXPECT_THROW(gemm(bench.context, a, Transpose::Yes, b, Transpose::No, c, false), std::logic_error);
  EXPECT_THROW(gemm(bench.context, a, Transpose::No, b, Transpose::Yes, c, false), std::logic_error);
  EXPECT_THROW(gemm(bench.context, a, Transpose::No, b, Transpose::No, bench.make({6, 4}), false),
               std::logic_error);
  EXPECT_THROW(gemm(bench.context, bench.make({4, 8}, DType::I32), Transpose::No, b, Transpose::No, c, false),
               std::logic_error);
  // Operands of two types, and a result that is narrower than its operands.
  EXPECT_THROW(
      gemm(bench.context, bench.make({4, 8}, DType::BF16), Transpose::No, b, Transpose::No, c, false),
      std::logic_error);
  EXPECT_THROW(
      gemm(bench.context, a, Transpose::No, b, Transpose::No, bench.make({4, 6}, DType::BF16), false),
      std::logic_error);
}

}  // namespace
}  // namespace compact
