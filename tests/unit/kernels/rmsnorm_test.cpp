#include "compact/kernels/rmsnorm.h"

#include "compact/kernels/elementwise.h"
#include "kernels/rmsnorm_cpu.h"
#include "unit/kernels/op_testing.h"

namespace compact {
namespace {
using namespace testing;

constexpr float kEps = 1e-6f;
const std::int64_t kSizes[][2] = {{1, 1}, {1, 16}, {3, 7}, {5, 33}, {130, 130}, {1100, 24}};  // N, C

struct PlainNorm {
  std::vector<double> y, rstd, dx, dw;  // dx and dw start from 0
};

/// Forward and backward by plain loops in double.
PlainNorm plain_norm(const Tensor& x, const Tensor& w, double eps, const Tensor& dy) {
  const std::int64_t N = x.rows(), C = x.cols();
  PlainNorm p;
  p.dw.assign(static_cast<std::size_t>(C), 0);
  for (std::int64_t n = 0; n < N; ++n) {
    double squares = 0, slope = 0;
    const auto at = [&](const Tensor& t, std::int64_t c) {
      return static_cast<double>(t.f32()[n * t.ld + c]);
    };
    const auto weight = [&](std::int64_t c) { return static_cast<double>(w.f32()[c]); };
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

TEST(RmsNorm, EqualsPlainLoops) {
  for (const auto& [N, C] : kSizes)
    for (std::int64_t padding : {0, 3}) {
      SCOPED_TRACE(fmt::format("N {} C {} padding {}", N, C, padding));
      Bench bench;
      const Tensor x = bench.strided({N, C}, padding), w = bench.random({C}, 2),
                   y = bench.strided({N, C}, padding), rstd = bench.make({N}),
                   dy = bench.strided({N, C}, padding), dx = bench.strided({N, C}, padding),
                   dw = bench.random({C}, 4);
      bench.randomize(x, 1);
      bench.randomize(dy, 3);
      bench.randomize(dx, 5);
      PlainNorm want = plain_norm(x, w, static_cast<double>(kEps), dy);
      const std::vector<float> dx_before = values(dx), dw_before = values(dw);
      for (std::size_t i = 0; i < want.dx.size(); ++i) want.dx[i] += static_cast<double>(dx_before[i]);
      for (std::size_t i = 0; i < want.dw.size(); ++i) want.dw[i] += static_cast<double>(dw_before[i]);
      rmsnorm_forward(bench.context, x, w, kEps, y, rstd);
      expect_close(y, want.y, 2e-6);
      expect_close(rstd, want.rstd, 1e-6, 0, 1);
      rmsnorm_backward(bench.context, dy, x, w, rstd, dx, dw);
      expect_close(dx, want.dx, 2e-6, 1e-6);
      expect_close(dw, want.dw, 5e-6, 1e-6);
      expect_padding_untouched(y, padding);
      expect_padding_untouched(dx, padding);
    }
}

TEST(RmsNorm, ResidualFormGivesTheBitsOfAddAndNorm) {
  for (const auto& [N, C] : kSizes) {
    Bench bench;
    const Tensor x = bench.random({N, C}, 1), delta = bench.random({N, C}, 2), w = bench.random({C}, 3),
                 sum = bench.make({N, C}), y = bench.make({N, C}), rstd = bench.make({N}),
                 sum2 = bench.make({N, C}), y2 = bench.make({N, C}), rstd2 = bench.make({N});
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

TEST(RmsNorm, GradientEqualsDifferenceQuotient) {
  Bench bench;
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
  Bench bench;
  const std::int64_t N = 700, C = 65;
  const Tensor x = bench.random({N, C}, 1), w = bench.random({C}, 2), y = bench.make({N, C}),
               rstd = bench.make({N}), dy = bench.random({N, C}, 3), dx = bench.make({N, C}),
               dw = bench.make({C});
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

TEST(RmsNorm, BothInstructionSetsAgree) {
  if (cpu_isa() != Isa::Avx512) GTEST_SKIP() << "AVX-512 is not there or not chosen";
  Bench bench;
  const Tensor x = bench.random({9, 77}, 1), w = bench.random({77}, 2), y = bench.make({9, 77}),
               rstd = bench.make({9});
  cpu::avx2::rmsnorm_forward(x.f32(), 77, nullptr, 0, nullptr, 0, w.f32(), kEps, y.f32(), 77, rstd.f32(), 9,
                             77);
  const std::vector<float> small = values(y);
  cpu::avx512::rmsnorm_forward(x.f32(), 77, nullptr, 0, nullptr, 0, w.f32(), kEps, y.f32(), 77, rstd.f32(), 9,
                               77);
  expect_close(y, {small.begin(), small.end()}, 1e-6);
}

TEST(RmsNorm, NumericCase) {
  COMPACT_NUMERIC_CASE(numeric, "rmsnorm");
  const nlohmann::json &in = numeric["inputs"], &expected = numeric["expected"];
  const double tolerance = numeric["tolerance"]["fp32"];
  const std::int64_t N = in["x"]["shape"][0], C = in["x"]["shape"][1];
  Bench bench;
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
  Bench bench;
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

TEST(RmsNorm, PlanEqualsRunAndBf16IsPlannedOnly) {
  expect_plan_equals_run([](Bench& bench) {
    const Tensor x = bench.random({600, 40}, 1), w = bench.random({40}, 2), y = bench.make({600, 40}),
                 rstd = bench.make({600});
    residual_rmsnorm_forward(bench.context, x, x, w, kEps, x, y, rstd);
    rmsnorm_backward(bench.context, y, x, w, rstd, x, w);
  });
  const auto forward = [](Bench& bench, DType t) {
    const Tensor x = bench.make({2, 4}, t);
    rmsnorm_forward(bench.context, x, bench.make({4}, t), kEps, x, bench.make({2}));
  };
  const auto residual = [](Bench& bench, DType t) {
    const Tensor x = bench.make({2, 4}, t);
    residual_rmsnorm_forward(bench.context, x, x, bench.make({4}, t), kEps, x, x, bench.make({2}));
  };
  const auto backward = [](Bench& bench, DType t) {
    const Tensor x = bench.make({2, 4}, t);
    rmsnorm_backward(bench.context, x, x, bench.make({4}, t), bench.make({2}), x, bench.make({4}));
  };
  expect_bf16_is_planned_only(forward);
  expect_bf16_is_planned_only(residual);
  expect_bf16_is_planned_only(backward);
}

}  // namespace
}  // namespace compact
