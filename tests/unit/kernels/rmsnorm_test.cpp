#include "compact/kernels/rmsnorm.h"

#include "compact/kernels/elementwise.h"
#include "kernels/rmsnorm_cpu.h"
#include "unit/kernels/op_testing.h"

namespace compact {
namespace {
using namespace testing;

constexpr std::int64_t kMemory = std::int64_t{8} << 20;  // of a bench: the emulation fills all of it
constexpr float kEps = 1e-6f;
constexpr DType kTypes[] = {DType::F32, DType::BF16};
// In BF16 half a unit in the last place, 2^-8 of a value.
double tolerance_of(DType type, double fp32) { return type == DType::BF16 ? 0x1.01p-9 : fp32; }
// N, C: one vector and tails, several rows of a CUDA block, and rows of one, two, four and more 16-byte packs
// for each of its threads.
const std::int64_t kSizes[][2] = {{1, 1},     {1, 16},   {3, 7},    {5, 33},   {130, 130},
                                  {1100, 24}, {11, 512}, {3, 2104}, {2, 4120}, {17, 8208}};

struct PlainNorm {
  std::vector<double> y, rstd, dx, dw;  // dx and dw start from 0
};

/// Forward and backward by plain loops in double.
PlainNorm plain_norm(const Tensor& x_, const Tensor& w_, double eps, const Tensor& dy_) {
  const std::int64_t N = x_.rows(), C = x_.cols();
  const std::vector<float> x = values(x_), w = values(w_), dy = values(dy_);
  PlainNorm p;
  p.dw.assign(static_cast<std::size_t>(C), 0);
  for (std::int64_t n = 0; n < N; ++n) {
    double squares = 0, slope = 0;
    const auto at = [&](const std::vector<float>& t, std::int64_t c) {
      return static_cast<double>(t[static_cast<std::size_t>(n * C + c)]);
    };
    const auto weight = [&](std::int64_t c) { return static_cast<double>(w[static_cast<std::size_t>(c)]); };
    for (std::int64_t c = 0; c < C; ++c) squares += at(x, c) * at(x, c);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(C) + eps);
    p.rstd.push_back(rstd);
    for (std::int64_t c = 0; c < C; ++c)
      slope += at(dy, c) * weight(c) * at(x, c) * rstd / static_cast<double>(C);
    for (std::int64_t c = 0; c < C; ++c) {
      p.y.push_back(at(x, c) * rstd * weight(c));
      p.dx.push_back(rstd * (at(dy, c) * weight(c) - at(x, c) * rstd * slope));
      p.dw[static_cast<std::size_t>(c)] += at(dy, c) * at(x, c) * rstd;
    }
  }
  return p;
}

void expect_plain_norm(std::int64_t N, std::int64_t C, std::int64_t padding, DType type, DType dw_type) {
  SCOPED_TRACE(fmt::format("N {} C {} padding {} {} dw {}", N, C, padding, name_of(type), name_of(dw_type)));
  Bench bench(test_device(), kMemory);
  const Tensor x = bench.strided({N, C}, padding, type), w = bench.random({C}, 2, 1, type),
               y = bench.strided({N, C}, padding, type), rstd = bench.make({N}),
               dy = bench.strided({N, C}, padding, type), dx = bench.strided({N, C}, padding, type),
               dw = bench.random({C}, 4, 1, dw_type);
  bench.randomize(x, 1);
  bench.randomize(dy, 3);
  bench.randomize(dx, 5);
  PlainNorm want = plain_norm(x, w, static_cast<double>(kEps), dy);
  const std::vector<float> dx_before = values(dx), dw_before = values(dw);
  for (std::size_t i = 0; i < want.dx.size(); ++i) want.dx[i] += static_cast<double>(dx_before[i]);
  for (std::size_t i = 0; i < want.dw.size(); ++i) want.dw[i] += static_cast<double>(dw_before[i]);
  rmsnorm_forward(bench.context, x, w, kEps, y, rstd);
  expect_close(y, want.y, tolerance_of(type, 2e-6));
  expect_close(rstd, want.rstd, 1e-6, 0, 1);
  rmsnorm_backward(bench.context, dy, x, w, rstd, dx, dw);
  expect_close(dx, want.dx, tolerance_of(type, 2e-6), 1e-6);
  expect_close(dw, want.dw, tolerance_of(dw_type, 5e-6), 1e-6);
  expect_padding_untouched(y, padding);
  expect_padding_untouched(dx, padding);
}

TEST(RmsNorm, EqualsPlainLoops) {
  for (const auto& [N, C] : kSizes)
    for (std::int64_t padding : {0, 3, 8})
      for (DType type : kTypes)
        for (DType dw_type : kTypes) expect_plain_norm(N, C, padding, type, dw_type);
}

TEST(RmsNorm, ABf16WeightGradientLosesNoSmallSummand) {
  // 1100 rows add 1e-3 each to a 1 that one of them alone would leave as it is.
  Bench bench(test_device(), kMemory);
  const Tensor x = bench.make({1100, 1}), w = bench.make({1}), rstd = bench.make({1100}),
               dy = bench.make({1100, 1}), dx = bench.random({1100, 1}, 1), dw = bench.make({1}, DType::BF16);
  for (const Tensor& t : {x, w, rstd}) fill(bench.context, t, 1);
  fill(bench.context, dy, 1e-3f);
  fill(bench.context, dw, 1);
  rmsnorm_backward(bench.context, dy, x, w, rstd, dx, dw);
  EXPECT_EQ(to_float(dw.as<Bf16>()[0]), to_float(nearest_bf16(2.1f)));
}

TEST(RmsNorm, ResidualFormGivesTheBitsOfAddAndNorm) {
  for (const auto& [N, C] : kSizes)
    for (DType type : kTypes) {
      Bench bench(test_device(), kMemory);
      const Tensor x = bench.random({N, C}, 1, 1, type), delta = bench.random({N, C}, 2, 1, type),
                   w = bench.random({C}, 3, 1, type), sum = bench.make({N, C}, type),
                   y = bench.make({N, C}, type), rstd = bench.make({N}), sum2 = bench.make({N, C}, type),
                   y2 = bench.make({N, C}, type), rstd2 = bench.make({N});
      add(bench.context, x, delta, sum);
      rmsnorm_forward(bench.context, sum, w, kEps, y, rstd);
      residual_rmsnorm_forward(bench.context, x, delta, w, kEps, sum2, y2, rstd2);
      EXPECT_TRUE(same_bits(values(sum2), values(sum)));
      EXPECT_TRUE(same_bits(values(y2), values(y)));
      EXPECT_TRUE(same_bits(values(rstd2), values(rstd)));
      residual_rmsnorm_forward(bench.context, x, delta, w, kEps, delta, y2, rstd2);  // in place
      EXPECT_TRUE(same_bits(values(delta), values(sum)));
      EXPECT_TRUE(same_bits(values(y2), values(y)));
    }
}

TEST(RmsNorm, WhereViewsLieChangesNoBit) {
  for (const std::int64_t C : {24, 520})
    for (DType type : kTypes) {
      const auto run = [&](std::int64_t padding) {
        Bench bench(test_device(), kMemory);
        const Tensor x = bench.strided({9, C}, padding, type), dy = bench.strided({9, C}, padding, type),
                     y = bench.strided({9, C}, padding, type), dx = bench.strided({9, C}, padding, type),
                     w = bench.random({C}, 1, 1, type), rstd = bench.make({9}), dw = bench.random({C}, 2);
        for (const Tensor& t : {x, dy, dx}) Bench::randomize(t, 3);
        rmsnorm_forward(bench.context, x, w, kEps, y, rstd);
        rmsnorm_backward(bench.context, dy, x, w, rstd, dx, dw);
        std::vector<float> all = values(y);
        for (const Tensor& t : {rstd, dx, dw})
          for (float v : values(t)) all.push_back(v);
        return all;
      };
      const std::vector<float> aligned = run(0);
      EXPECT_TRUE(same_bits(run(3), aligned));
      EXPECT_TRUE(same_bits(run(8), aligned));
    }
}

TEST(RmsNorm, GradientEqualsDifferenceQuotient) {
  Bench bench(test_device(), kMemory);
  const Tensor x = bench.random({6, 37}, 1), w = bench.random({37}, 2), y = bench.make({6, 37}),
               rstd = bench.make({6}), dx = bench.make({6, 37}), dw = bench.make({37});
  const std::vector<float> weights = random_values(6 * 37, 3);
  const auto loss = [&] {
    rmsnorm_forward(bench.context, x, w, kEps, y, rstd);
    return dot(values(y), weights);
  };
  loss();
  zero(bench.context, dx);
  zero(bench.context, dw);
  rmsnorm_backward(bench.context, bench.of({6, 37}, weights), x, w, rstd, dx, dw);
  expect_gradient(x, values(dx), loss);
  expect_gradient(w, values(dw), loss);
}

TEST(RmsNorm, IsTheSameForAnyThreads) {
  for (DType type : kTypes) {
    Bench bench(test_device(), kMemory);
    const std::int64_t N = 700, C = 65;
    const Tensor x = bench.random({N, C}, 1, 1, type), w = bench.random({C}, 2, 1, type),
                 y = bench.make({N, C}, type), rstd = bench.make({N}), dy = bench.random({N, C}, 3, 1, type),
                 dx = bench.make({N, C}, type), dw = bench.make({C});
    expect_same_bits_for_any_threads([&] {
      zero(bench.context, dx);
      zero(bench.context, dw);
      rmsnorm_forward(bench.context, x, w, kEps, y, rstd);
      rmsnorm_backward(bench.context, dy, x, w, rstd, dx, dw);
      std::vector<float> all = values(y);
      for (const Tensor& t : {rstd, dx, dw})
        for (float v : values(t)) all.push_back(v);
      return all;
    });
  }
}

TEST(RmsNorm, BothInstructionSetsGiveTheSameBits) {
  if (on_cuda()) GTEST_SKIP() << "about the CPU's loops";
  if (cpu_isa() != Isa::Avx512) GTEST_SKIP() << "AVX-512 is not there or not chosen";
  const std::int64_t N = 9, C = 277;
  const auto run = [&]<typename T>(T, DType type, bool small) {
    Bench bench(test_device(), kMemory);
    const Tensor x = bench.random({N, C}, 1, 1, type), w = bench.random({C}, 2, 1, type),
                 y = bench.make({N, C}, type), rstd = bench.make({N}), dx = bench.random({N, C}, 3, 1, type),
                 partial = bench.make({2, C});
    const auto forward = [&](auto op) {
      op(x.as<T>(), C, static_cast<T*>(nullptr), 0, static_cast<T*>(nullptr), 0, w.as<T>(), kEps, y.as<T>(),
         C, rstd.f32(), N, C);
    };
    const auto backward = [&](auto op) {
      op(y.as<T>(), C, x.as<T>(), C, w.as<T>(), rstd.f32(), dx.as<T>(), C, partial.f32(), 2, N, C);
    };
    forward(
        [&](auto... a) { small ? cpu::avx2::rmsnorm_forward(a...) : cpu::avx512::rmsnorm_forward(a...); });
    backward(
        [&](auto... a) { small ? cpu::avx2::rmsnorm_backward(a...) : cpu::avx512::rmsnorm_backward(a...); });
    std::vector<float> all;
    for (const Tensor& t : {y, rstd, dx, partial})
      for (float v : values(t)) all.push_back(v);
    return all;
  };
  EXPECT_TRUE(same_bits(run(float{}, DType::F32, true), run(float{}, DType::F32, false)));
  EXPECT_TRUE(same_bits(run(Bf16{}, DType::BF16, true), run(Bf16{}, DType::BF16, false)));
}

TEST(RmsNorm, NumericCase) {
  COMPACT_NUMERIC_CASE(numeric, "rmsnorm");
  const nlohmann::json &in = numeric["inputs"], &expected = numeric["expected"];
  const double tolerance = numeric["tolerance"]["fp32"];
  const std::int64_t N = in["x"]["shape"][0], C = in["x"]["shape"][1];
  Bench bench(test_device(), kMemory);
  const Tensor x = bench.of({N, C}, numbers(in["x"])), w = bench.of({C}, numbers(in["w"])),
               dy = bench.of({N, C}, numbers(in["dy"])), y = bench.make({N, C}), rstd = bench.make({N}),
               dx = bench.make({N, C}), dw = bench.make({C});
  rmsnorm_forward(bench.context, x, w, in["eps"], y, rstd);
  zero(bench.context, dx);
  zero(bench.context, dw);
  rmsnorm_backward(bench.context, dy, x, w, rstd, dx, dw);
  expect_close(y, numbers(expected["y"]), tolerance, absolute_tolerance(numeric, "y"));
  expect_close(rstd, numbers(expected["rstd"]), tolerance, absolute_tolerance(numeric, "rstd"), 1);
  expect_close(dx, numbers(expected["dx"]), tolerance, absolute_tolerance(numeric, "dx"));
  expect_close(dw, numbers(expected["dw"]), tolerance, absolute_tolerance(numeric, "dw"));
}

TEST(RmsNorm, ResidualNumericCase) {
  COMPACT_NUMERIC_CASE(numeric, "residual_rmsnorm");
  const nlohmann::json &in = numeric["inputs"], &expected = numeric["expected"];
  const double tolerance = numeric["tolerance"]["fp32"];
  const std::int64_t N = in["x"]["shape"][0], C = in["x"]["shape"][1];
  Bench bench(test_device(), kMemory);
  const Tensor x = bench.of({N, C}, numbers(in["x"])), r = bench.of({N, C}, numbers(in["r"])),
               w = bench.of({C}, numbers(in["w"])), dy = bench.of({N, C}, numbers(in["dy"])),
               dx = bench.of({N, C}, numbers(in["dh_in"])), h = bench.make({N, C}), y = bench.make({N, C}),
               rstd = bench.make({N}), dw = bench.make({C});
  residual_rmsnorm_forward(bench.context, x, r, w, in["eps"], h, y, rstd);
  zero(bench.context, dw);
  rmsnorm_backward(bench.context, dy, h, w, rstd, dx, dw);
  expect_close(h, numbers(expected["h"]), tolerance);
  expect_close(y, numbers(expected["y"]), tolerance);
  expect_close(rstd, numbers(expected["rstd"]), tolerance, 0, 1);
  expect_close(dx, numbers(expected["dx"]), tolerance);
  expect_close(dx, numbers(expected["dr"]), tolerance);
  expect_close(dw, numbers(expected["dw"]), tolerance);
}

TEST(RmsNorm, PlanEqualsRun) {
  for (DType type : kTypes)
    expect_plan_equals_run([&](Bench& bench) {
      const Tensor x = bench.random({600, 40}, 1, 1, type), w = bench.random({40}, 2, 1, type),
                   y = bench.make({600, 40}, type), rstd = bench.make({600}), dw = bench.random({40}, 3);
      residual_rmsnorm_forward(bench.context, x, x, w, kEps, x, y, rstd);
      rmsnorm_backward(bench.context, y, x, w, rstd, x, dw);
    });
}

TEST(RmsNorm, RefusesMixedTypes) {
  Bench bench(test_device(), kMemory);
  const Tensor x = bench.random({2, 4}, 1), w = bench.random({4}, 2), rstd = bench.make({2}),
               half = bench.make({2, 4}, DType::BF16);
  EXPECT_THROW(rmsnorm_forward(bench.context, x, w, kEps, half, rstd), std::logic_error);
  EXPECT_THROW(residual_rmsnorm_forward(bench.context, x, half, w, kEps, x, x, rstd), std::logic_error);
  EXPECT_THROW(rmsnorm_backward(bench.context, x, x, w, rstd, half, w), std::logic_error);
}

}  // namespace
}  // namespace compact
