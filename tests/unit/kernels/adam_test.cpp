#include "compact/kernels/adam.h"

#include "compact/core/error.h"
#include "unit/kernels/op_testing.h"

namespace compact {
namespace {

using testing::Bench;
using testing::numbers;
using testing::same_bits;
using testing::values;

AdamStep step_of(double lr, double decay, std::int64_t t, double beta2 = 0.999, double eps = 1e-6) {
  AdamStep step = adam_step(0.9, beta2, eps, t);
  step.lr = static_cast<float>(lr);
  step.decay = static_cast<float>(decay);
  return step;
}

/// Adam in double for one element.
struct Plain {
  double m = 0, v = 0;
  double move(double g, double lr, std::int64_t t, double beta2 = 0.999, double eps = 1e-6) {
    m = 0.9 * m + 0.1 * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double power = static_cast<double>(t);
    return lr * (m / (1 - std::pow(0.9, power))) / (std::sqrt(v / (1 - std::pow(beta2, power))) + eps);
  }
};

Tensor zeros(Bench& bench, Shape shape) {
  const Tensor t = bench.make(shape);
  std::fill_n(t.f32(), t.elements(), 0.0f);
  return t;
}

TEST(AdamW, NumericCase) {
  COMPACT_NUMERIC_CASE(numeric, "adamw");
  const double tolerance = numeric["tolerance"]["fp32"], lr = numeric["inputs"]["lr"];
  const std::vector<double> w0 = numbers(numeric["inputs"]["w0"]),
                            g = numbers(numeric["inputs"]["gradients"]);
  for (const char* name : {"no_decay", "decay"}) {
    const double decay =
        std::string(name) == "decay" ? lr * numeric["inputs"]["weight_decay"].get<double>() : 0;
    Bench bench;
    const Tensor w = bench.of({8}, w0), m = zeros(bench, {8}), v = zeros(bench, {8});
    const std::vector<double> want = numbers(numeric["expected"][name]["w"]);
    for (std::int64_t t = 0; t < 5; ++t) {
      const Tensor gradient = bench.of({8}, std::vector<double>(g.begin() + 8 * t, g.begin() + 8 * t + 8));
      adamw(bench.context, step_of(lr, decay, t + 1), {}, w, gradient, m, v, {});
      testing::expect_close(w, {want.begin() + 8 * t, want.begin() + 8 * t + 8}, tolerance);
    }
    testing::expect_close(m, numbers(numeric["expected"][name]["m"]), tolerance);
    testing::expect_close(v, numbers(numeric["expected"][name]["v"]), tolerance);
  }
}

TEST(AdamW, NumericCaseStepScale) {
  COMPACT_NUMERIC_CASE(numeric, "compact_step_scale");
  const auto& in = numeric["inputs"];
  const double lr = in["lr"], alpha = in["alpha"], out_scale = in["out_scale"];
  for (const auto& [name, size] : {std::pair{"plain", lr}, {"o_proj", lr * (alpha * out_scale)}}) {
    Bench bench;
    const Tensor w = bench.of({4, 5}, numbers(in["W"])), g = bench.of({4, 5}, numbers(in["G"]));
    adamw(bench.context, step_of(size, 0, 1), {}, w, g, zeros(bench, {4, 5}), zeros(bench, {4, 5}), {});
    testing::expect_close(w, numbers(numeric["expected"][name]), numeric["tolerance"]["fp32"]);
  }
}

TEST(AdamW, AgreesWithPlainLoops) {
  for (const std::int64_t n : {1, 7, 16, 33, 1000, 4099}) {
    Bench bench;
    const Tensor w = bench.random({n}, 1), g = bench.make({n}), m = zeros(bench, {n}), v = zeros(bench, {n});
    const std::vector<float> start = values(w);
    std::vector<double> want(start.begin(), start.end());
    std::vector<Plain> plain(want.size());
    for (std::int64_t t = 1; t <= 20; ++t) {
      Bench::randomize(g, static_cast<std::uint32_t>(t), t % 2 == 0 ? 10.0f : 0.01f);
      AdamStep step = step_of(0.02, 0.001, t);
      step.gradient_scale = 0.3f;
      adamw(bench.context, step, {}, w, g, m, v, {});
      for (std::size_t i = 0; i < want.size(); ++i)
        want[i] = want[i] * (1 - 0.001) - plain[i].move(static_cast<double>(g.f32()[i]) * 0.3, 0.02, t);
    }
    testing::expect_close(w, want, 2e-6, 2e-6);
  }
}

TEST(AdamW, ASmallGradientKeepsItsSecondMomentExact) {
  // 1 - beta2 made from the float of beta2 would be 1.3e-5 off.
  Bench bench;
  const Tensor w = zeros(bench, {1}), g = bench.of({1}, std::vector<double>{1.0}), m = zeros(bench, {1}),
               v = zeros(bench, {1});
  adamw(bench.context, step_of(1, 0, 1), {}, w, g, m, v, {});
  EXPECT_EQ(v.f32()[0], 0.001f);
  EXPECT_EQ(m.f32()[0], 0.1f);
}

TEST(AdamW, NoGradientMovesOnlyByDecay) {
  Bench bench;
  const Tensor w = bench.random({37}, 1), g = zeros(bench, {37});
  const std::vector<float> start = values(w);
  adamw(bench.context, step_of(0.1, 0, 1), {}, w, g, zeros(bench, {37}), zeros(bench, {37}), {});
  EXPECT_TRUE(same_bits(values(w), start));
  adamw(bench.context, step_of(0.1, 0.5, 1), {}, w, g, zeros(bench, {37}), zeros(bench, {37}), {});
  for (std::size_t i = 0; i < start.size(); ++i) EXPECT_EQ(w.f32()[i], 0.5f * start[i]);
}

TEST(AdamStep, CorrectionsAreMadeInDouble) {
  const AdamStep first = adam_step(0.9, 0.999, 1e-8, 1);
  EXPECT_EQ(first.correction1, static_cast<float>(1 / (1 - 0.9)));
  EXPECT_EQ(first.correction2, static_cast<float>(1 / (1 - 0.999)));
  EXPECT_EQ(adam_step(0.9, 0.999, 1e-8, 1000000000).correction2, 1.0f);
  EXPECT_EQ(adam_step(0, 0, 1e-8, 1).correction1, 1.0f);
  EXPECT_THROW(adam_step(0.9, 0.999, 1e-8, 0), std::logic_error);
}

/// The compressed linear of the numeric cases with their own P: everything but the elementwise part in plain
/// loops. Their weights are [in, out]; here w is [out, in], and the compressed gradient [out, r].
void check_compact_linear(const nlohmann::json& numeric) {
  const auto& in = numeric["inputs"];
  const double tolerance = numeric["tolerance"]["fp32"], lr = in["lr"], alpha = in["alpha"],
               decay = in["weight_decay"];
  const std::int64_t r = in["rank"], n = in["W0"]["shape"][0], out = in["W0"]["shape"][1];
  Bench bench;
  const Tensor m = zeros(bench, {out, r}), v = zeros(bench, {out, r}), g = bench.make({out, r});
  std::vector<double> W = numbers(in["W0"]);
  const auto at = [](const std::vector<double>& a, std::int64_t i) { return a[static_cast<std::size_t>(i)]; };
  for (std::size_t t = 0; t < in["steps"].size(); ++t) {
    const auto& step_in = in["steps"][t];
    const std::int64_t gap = in["update_gap"], window = static_cast<std::int64_t>(t) / gap;
    ASSERT_EQ(step_in["window"].get<std::int64_t>(), window);
    const std::vector<double> P = numbers(in["P"][static_cast<std::size_t>(window)]);
    std::vector<double> sum(static_cast<std::size_t>(out * r), 0.0);
    for (const auto& micro : step_in["micro_batches"]) {
      const std::vector<double> x = numbers(micro["x"]), dO = numbers(micro["dO"]);
      const std::int64_t N = micro["x"]["shape"][0];
      for (std::int64_t token = 0; token < N; ++token)
        for (std::int64_t j = 0; j < r; ++j) {
          double z = 0;
          for (std::int64_t i = 0; i < n; ++i) z += at(x, token * n + i) * at(P, i * r + j);
          for (std::int64_t o = 0; o < out; ++o)
            sum[static_cast<std::size_t>(o * r + j)] += z * at(dO, token * out + o);
        }
    }
    testing::set_values(g, std::vector<float>(sum.begin(), sum.end()));
    AdamStep step = adam_step(in["beta1"], in["beta2"], in["eps"], static_cast<std::int64_t>(t) + 1);
    step.lr = static_cast<float>(lr * alpha);
    adam_direction(bench.context, step, {}, g, m, v);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t o = 0; o < out; ++o) {
        double& w = W[static_cast<std::size_t>(i * out + o)];
        w *= 1 - lr * decay;
        for (std::int64_t j = 0; j < r; ++j) w += at(P, i * r + j) * static_cast<double>(g.f32()[o * r + j]);
      }
    testing::expect_close(std::vector<float>(W.begin(), W.end()),
                          numbers(numeric["expected"]["steps"][t]["W"]), out, tolerance);
  }
  for (const auto& [tensor, name] : {std::pair{m, "m"}, {v, "v"}}) {
    std::vector<float> transposed;
    for (std::int64_t j = 0; j < r; ++j)
      for (std::int64_t o = 0; o < out; ++o) transposed.push_back(tensor.f32()[o * r + j]);
    testing::expect_close(transposed, numbers(numeric["expected"][name]), out, tolerance);
  }
}

TEST(AdamDirection, NumericCaseCompactLinear) {
  COMPACT_NUMERIC_CASE(numeric, "compact_linear");
  check_compact_linear(numeric);
}

TEST(AdamDirection, NumericCaseCompactLinearDecayMicro) {
  COMPACT_NUMERIC_CASE(numeric, "compact_linear_decay_micro");
  check_compact_linear(numeric);
}

TEST(ProjectedAdam, AgreesWithPlainLoops) {
  // Both r that are no multiple of 4, r = n, and one that needs several slices of P.
  for (const auto& [rows, n, r] :
       std::vector<std::array<std::int64_t, 3>>{{1, 1, 1}, {3, 10, 3}, {5, 8, 8}, {7, 33, 6}, {2, 600, 510}})
    for (const double decay : {0.0, 0.01}) {
      Bench bench;
      const Tensor w = bench.random({rows, n}, 1), g = bench.make({rows, r}), P = bench.make({n, r});
      const Tensor m = zeros(bench, {rows, r}), v = zeros(bench, {rows, r});
      const std::vector<float> start = values(w);
      std::vector<double> want(start.begin(), start.end());
      std::vector<Plain> plain(static_cast<std::size_t>(rows * r));
      for (std::int64_t t = 1; t <= 4; ++t) {
        // A new P at update 2, moments kept.
        const Projection p{ProjectionKind::Gaussian, 42, 5, static_cast<std::uint32_t>((t - 1) / 2), n, r};
        projection_rows(bench.context, p, 0, P);
        Bench::randomize(g, static_cast<std::uint32_t>(t));
        AdamStep step = step_of(0.01, decay, t);
        step.gradient_scale = 0.5f;
        std::vector<double> moves;
        for (std::size_t i = 0; i < plain.size(); ++i)
          moves.push_back(plain[i].move(static_cast<double>(g.f32()[i]) * 0.5, 0.01, t));
        projected_adam(bench.context, step, {}, p, w, g, m, v, {});
        for (std::size_t i = 0; i < moves.size(); ++i)
          ASSERT_NEAR(static_cast<double>(g.f32()[i]), -moves[i], 1e-6 * 0.01 + 1e-5 * std::abs(moves[i]));
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t k = 0; k < n; ++k) {
            double& x = want[static_cast<std::size_t>(i * n + k)];
            x *= 1 - decay;
            for (std::int64_t j = 0; j < r; ++j)
              x -= moves[static_cast<std::size_t>(i * r + j)] * static_cast<double>(P.f32()[k * r + j]);
          }
      }
      testing::expect_close(w, want, 1e-6, 1e-6);
    }
}

TEST(ProjectedAdam, NeedsNoTemporaryOfTheSizeOfTheWeight) {
  Bench plan(Device::Plan);
  const Projection p{ProjectionKind::Gaussian, 1, 1, 0, 4096, 1024};
  const auto states = [&] { return plan.make({4096, p.r}); };
  projected_adam(plan.context, step_of(1, 0.1, 1), {}, p, plan.make({4096, p.n}, DType::BF16), states(),
                 states(), states(), {});
  EXPECT_LE(plan.arena.ledger().at_peak()[static_cast<std::size_t>(Category::Workspace)],
            (testing::on_cuda() ? 17 : 8) << 20);
}

TEST(Adam, AClosedGateChangesNothingAndAnOpenOneScalesTheGradient) {
  const Projection p{ProjectionKind::Gaussian, 42, 5, 1, 35, 19};
  for (const DType type : {DType::F32, DType::BF16}) {
    // All that the ops change: with `gate` of [scale, open, ...], or none and the scale in the step.
    const auto run = [&](bool gated, float scale, float open) {
      Bench bench(testing::test_device(), std::int64_t{4} << 20);
      const auto some = [&](Shape shape, std::uint32_t seed, DType dtype) {
        const Tensor t = bench.random(shape, seed, 0.1f, dtype);
        std::vector<float> positive = values(t);
        for (float& x : positive) x = std::abs(x);
        testing::set_values(t, positive);
        return t;
      };
      const Tensor gate = bench.of({3}, std::vector<float>{scale, open, 0});
      AdamStep step = step_of(0.1, 0.01, 3);
      step.gradient_scale = gated ? 0.7f : 0.7f * scale;
      if (gated) step.gate = gate.f32();
      std::vector<Tensor> all;
      const auto of = [&](Shape shape, DType dtype) {
        all.push_back(some(shape, static_cast<std::uint32_t>(all.size()) + 1, dtype));
        return all.back();
      };
      const Rounding rounding{true, 42, 9, 1000};
      for (const DType master : {DType::F32, DType::BF16}) {
        const Tensor w = of({3, 35}, type);
        const Tensor copy = master == DType::F32 ? bench.as(w, DType::F32) : Tensor{};
        if (!copy.empty()) all.push_back(copy);
        adamw(bench.context, step, rounding, w, of({3, 35}, DType::F32), of({3, 35}, type), of({3, 35}, type),
              copy);
        projected_adam(bench.context, step, rounding, p, w, of({3, 19}, DType::F32), of({3, 19}, type),
                       of({3, 19}, type), copy);
      }
      adam_direction(bench.context, step, rounding, of({3, 19}, type), of({3, 19}, type), of({3}, type));
      std::vector<float> out;
      for (const Tensor& t : all)
        for (const float x : values(t)) out.push_back(x);
      return out;
    };
    const std::vector<float> closed = run(true, 0.5f, 0), untouched = run(true, 0.25f, 0);
    EXPECT_TRUE(same_bits(closed, untouched));
    const std::vector<float> open = run(true, 0.5f, 1), scaled = run(false, 0.5f, 1);
    EXPECT_TRUE(same_bits(open, scaled));
    EXPECT_FALSE(same_bits(open, closed));
    EXPECT_FALSE(same_bits(open, run(true, 0.25f, 1)));
  }
}

TEST(Adam, SameBitsForAnyThreads) {
  Bench bench;
  const Projection p{ProjectionKind::Gaussian, 42, 5, 1, 70, 19};
  const Tensor w = bench.make({31, 70}), full = bench.make({31, 70}), g = bench.make({31, 19});
  const Tensor m = bench.make({31, 19}), v = bench.make({31, 19}), fm = bench.make({31, 70}),
               fv = bench.make({31, 70});
  testing::expect_same_bits_for_any_threads([&] {
    std::uint32_t seed = 0;
    for (const Tensor& t : {w, full, g, m, v, fm, fv}) Bench::randomize(t, ++seed);
    for (const Tensor& t : {v, fv})
      for (std::int64_t i = 0; i < t.elements(); ++i) t.f32()[i] = std::abs(t.f32()[i]);
    projected_adam(bench.context, step_of(0.1, 0.01, 3), {}, p, w, g, m, v, {});
    adamw(bench.context, step_of(0.1, 0.01, 3), {}, full, w, fm, fv, {});
    std::vector<float> out;
    for (const Tensor& t : {w, full, g, m, v, fm, fv})
      for (const float x : values(t)) out.push_back(x);
    return out;
  });
}

TEST(Adam, PlansAndRefuses) {
  const AdamStep step = step_of(0.1, 0.1, 1);
  const Projection p{ProjectionKind::Gaussian, 1, 1, 0, 8, 2};
  testing::expect_plan_equals_run([&](Bench& bench) {
    const auto some = [&](Shape shape, DType dtype) { return bench.random(shape, 1, 1, dtype); };
    for (const DType type : {DType::F32, DType::BF16}) {
      const Tensor w = some({3, 8}, type), master = some({3, 8}, DType::F32);
      adamw(bench.context, step, {}, w, some({3, 8}, DType::F32), some({3, 8}, type), some({3, 8}, type),
            master);
      adam_direction(bench.context, step, {}, some({3, 2}, type), some({3, 2}, type), some({3}, type));
    }
  });
  Bench bench;
  const Tensor w = bench.random({3, 8}, 1), g = bench.random({3, 2}, 2);
  const Tensor wide = bench.make({3, 16}), bf16 = bench.make({3, 8}, DType::BF16);
  EXPECT_THROW(adamw(bench.context, step, {}, w, g, w, w, {}), std::logic_error);
  EXPECT_THROW(adamw(bench.context, step, {}, w, w, w, g, {}), std::logic_error);
  EXPECT_THROW(adamw(bench.context, step, {}, w, w, w, bf16, {}), std::logic_error);
  EXPECT_THROW(adamw(bench.context, step, {}, w, w, w, w, g), std::logic_error);
  EXPECT_THROW(adamw(bench.context, step, {}, bf16, w, w, w, bf16), std::logic_error);
  EXPECT_THROW(adamw(bench.context, step, {}, w, w, w, w, wide.columns(0, 8)), std::logic_error);
  EXPECT_THROW(adamw(bench.context, step, {true, 1, 1u << 24, 0}, w, w, w, w, {}), std::logic_error);
  EXPECT_THROW(adam_direction(bench.context, step, {}, g, g, bench.make({2})), std::logic_error);
  EXPECT_THROW(adam_direction(bench.context, step, {}, g, g, bench.make({3}, DType::BF16)), std::logic_error);
  EXPECT_THROW(projected_adam(bench.context, step, {}, p, w, w, g, g, {}), std::logic_error);
  EXPECT_THROW(projected_adam(bench.context, step, {}, p, w, g, g, w, {}), std::logic_error);
  EXPECT_THROW(projected_adam(bench.context, step, {}, p, w, g, g, g, g), std::logic_error);
}

}  // namespace
}  // namespace compact
