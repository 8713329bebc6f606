#include "kernels/adam_cpu.h"
#include "unit/kernels/adam_testing.h"

/// Adam on bf16 weights, gradients and moments, on master weights, and with one second moment for each row.
/// In fp32 the ops are held to double in adam_test.cpp; here every other type is held to fp32.
namespace compact {
namespace {
using namespace testing::adam;
using testing::same_bits;
using testing::values;

TEST(AdamRounding, EveryTypeIsTheFloatResultRounded) {
  const Rounding stochastic{true, 0x123456789abcdefULL, 77, 5};
  Rounding nearest = stochastic;
  nearest.stochastic = false;
  for (const Shape& shape : kShapes)
    for (const DType w_type : kTypes)
      for (const DType g_type : kTypes)
        for (const DType s_type : kTypes)
          for (const Rounding& r : {stochastic, nearest}) {
            Bench bench;
            const Operands want = operands(bench, shape, DType::F32, DType::F32, DType::F32);
            const Operands got = operands(bench, shape, w_type, g_type, s_type);
            const std::vector<float> gradient = values(got.g);
            adamw(bench.context, some_step(), r, want.w, want.g, want.m, want.v, {});
            adamw(bench.context, some_step(), r, got.w, got.g, got.m, got.v, {});
            const How how = r.stochastic ? How::Lower : How::Nearest;
            EXPECT_TRUE(same_bits(values(got.w), rounded(want.w, w_type, how, r))) << shape.text();
            EXPECT_TRUE(same_bits(values(got.m), rounded(want.m, s_type, How::Nearest, r))) << shape.text();
            EXPECT_TRUE(same_bits(values(got.v), rounded(want.v, s_type, How::Upper, r))) << shape.text();
            EXPECT_TRUE(same_bits(values(got.g), gradient)) << shape.text();
          }
}

TEST(AdamRounding, TheFloatResultIsNearDouble) {
  // Against an error that all types share: the fp32 result that the other tests start from.
  Bench bench;
  const Operands x = operands(bench, {5, 67}, DType::F32, DType::F32, DType::F32);
  const AdamStep step = some_step();
  std::vector<double> w, m, v;
  for (std::size_t i = 0; i < 5 * 67; ++i) {
    const double g = 0.7 * static_cast<double>(x.g.f32()[i]);
    m.push_back(0.9 * static_cast<double>(x.m.f32()[i]) + 0.1 * g);
    v.push_back(0.999 * static_cast<double>(x.v.f32()[i]) + 0.001 * g * g);
    w.push_back(static_cast<double>(x.w.f32()[i]) * 0.999 -
                0.01 * (m[i] / (1 - std::pow(0.9, 3))) / (std::sqrt(v[i] / (1 - std::pow(0.999, 3))) + 1e-6));
  }
  adamw(bench.context, step, {}, x.w, x.g, x.m, x.v, {});
  testing::expect_close(x.w, w, 1e-6);
  testing::expect_close(x.m, m, 1e-6);
  testing::expect_close(x.v, v, 1e-6);
}

TEST(AdamRounding, ADirectionIsTheFloatResultRounded) {
  const Rounding r{true, 42, 9, 1000};
  for (const Shape& shape : kShapes)
    for (const DType g_type : kTypes)
      for (const DType s_type : kTypes) {
        Bench bench;
        const Operands want = operands(bench, shape, DType::F32, DType::F32, DType::F32);
        const Operands got = operands(bench, shape, DType::F32, g_type, s_type);
        adam_direction(bench.context, some_step(), r, want.g, want.m, want.v);
        adam_direction(bench.context, some_step(), r, got.g, got.m, got.v);
        EXPECT_TRUE(same_bits(values(got.g), rounded(want.g, g_type, How::Nearest, r))) << shape.text();
        EXPECT_TRUE(same_bits(values(got.m), rounded(want.m, s_type, How::Nearest, r))) << shape.text();
        EXPECT_TRUE(same_bits(values(got.v), rounded(want.v, s_type, How::Upper, r))) << shape.text();
      }
}

TEST(AdamRounding, MasterWeightsAreTheFloatRunAndWeightsTheirNearest) {
  for (const Shape& shape : kShapes)
    for (const DType w_type : kTypes)
      for (const DType g_type : kTypes)
        for (const DType s_type : kTypes) {
          Bench bench;
          const Operands want = operands(bench, shape, DType::F32, g_type, s_type);
          const Operands got = operands(bench, shape, w_type, g_type, s_type);
          const Tensor master = bench.as(want.w, DType::F32);
          for (std::uint32_t t = 1; t <= 3; ++t) {
            const Rounding r{true, 42, 9, t};
            adamw(bench.context, some_step(t), r, want.w, want.g, want.m, want.v, {});
            adamw(bench.context, some_step(t), r, got.w, got.g, got.m, got.v, master);
            EXPECT_TRUE(same_bits(values(master), values(want.w))) << shape.text();
            EXPECT_TRUE(same_bits(values(got.w), rounded(master, w_type, How::Nearest, r))) << shape.text();
            EXPECT_TRUE(same_bits(values(got.m), values(want.m)));
            EXPECT_TRUE(same_bits(values(got.v), values(want.v)));
          }
        }
}

TEST(AdamRounding, SmallUpdatesAreNotLost) {
  COMPACT_NUMERIC_CASE(numeric, "bf16_lost_updates");
  const auto& in = numeric["inputs"];
  const std::int64_t n = in["weights"], updates = in["updates"];
  for (const bool stochastic : {false, true}) {
    Bench bench;
    const Tensor w = bench.make({n}, DType::BF16), g = bench.make({n}), m = bench.make({n}),
                 v = bench.make({n});
    for (std::int64_t i = 0; i < n; ++i) {
      put(w.as<Bf16>()[i], in["w0"].get<float>());
      g.f32()[i] = -1;
      m.f32()[i] = v.f32()[i] = 0;
    }
    AdamStep step = adam_step(0, 0, 0, 1);  // the direction is the gradient's sign
    step.lr = in["step"].get<float>();
    for (std::int64_t t = 0; t < updates; ++t)
      adamw(bench.context, step, {stochastic, 42, 3, static_cast<std::uint32_t>(t)}, w, g, m, v, {});
    double mean = 0;
    for (const float x : values(w)) mean += static_cast<double>(x) / static_cast<double>(n);
    if (stochastic) {
      EXPECT_GE(mean, numeric["expected"]["stochastic"]["low"].get<double>());
      EXPECT_LE(mean, numeric["expected"]["stochastic"]["high"].get<double>());
    } else {
      EXPECT_EQ(mean, numeric["expected"]["nearest"]["value"].get<double>());
    }
  }
}

TEST(AdamRounding, SecondMomentsAreUnbiased) {
  // v goes from 1 to 0.999, between two bf16 values 1/256 apart; the mean over all within 6 deviations.
  const std::int64_t n = 65536;
  Bench bench;
  const auto bf16 = [&](float x) {
    const Tensor t = bench.make({256, n / 256}, DType::BF16);
    for (std::int64_t i = 0; i < n; ++i) put(t.as<Bf16>()[i], x);
    return t;
  };
  const Tensor v = bf16(1);
  adam_direction(bench.context, some_step(), {false, 42, 3, 8}, bf16(0), bf16(0), v);
  double mean = 0;
  for (const float x : values(v)) {
    EXPECT_TRUE(x == 1.0f || x == 1.0f - 1.0f / 256) << x;
    mean += static_cast<double>(x) / static_cast<double>(n);
  }
  const double down = 0.001 * 256, deviation = std::sqrt(down * (1 - down) / static_cast<double>(n)) / 256;
  EXPECT_NEAR(mean, 0.999, 6 * deviation);
}

TEST(AdamRounding, IsAFunctionOfSeedIdAndStep) {
  const auto run = [](const Rounding& r) {
    Bench bench;
    const Operands x = operands(bench, {3, 130}, DType::BF16, DType::BF16, DType::BF16);
    adamw(bench.context, some_step(), r, x.w, x.g, x.m, x.v, {});
    std::vector<float> out = values(x.w), more = values(x.v);
    out.insert(out.end(), more.begin(), more.end());
    return out;
  };
  const std::vector<float> first = run({true, 42, 3, 8});
  EXPECT_TRUE(same_bits(run({true, 42, 3, 8}), first));  // an update that is done again after a resume
  EXPECT_FALSE(same_bits(run({true, 43, 3, 8}), first));
  EXPECT_FALSE(same_bits(run({true, 42ULL | 1ULL << 40, 3, 8}), first));
  EXPECT_FALSE(same_bits(run({true, 42, 4, 8}), first));
  EXPECT_FALSE(same_bits(run({true, 42, 3, 9}), first));
}

TEST(AdamRounding, ValuesThatBf16HasStay) {
  // lr 0 and no decay, as in update 0 of a warm-up: no rounding may move a weight.
  Bench bench;
  const Operands x = operands(bench, {3, 130}, DType::BF16, DType::F32, DType::F32);
  const std::vector<float> start = values(x.w);
  AdamStep step = some_step();
  step.lr = step.decay = 0;
  adamw(bench.context, step, {true, 42, 3, 0}, x.w, x.g, x.m, x.v, {});
  EXPECT_TRUE(same_bits(values(x.w), start));
}

TEST(AdamPerRow, AgreesWithPlainLoops) {
  for (const auto& [rows, cols] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 5}, {4, 33}, {130, 257}, {5, 1000}})
    for (const DType g_type : kTypes) {
      Bench bench;
      const Operands x = operands(bench, {rows, cols}, DType::F32, g_type, DType::F32);
      const Tensor v = bench.make({rows});
      std::vector<double> want_v, want_m, want;
      for (std::int64_t i = 0; i < rows; ++i) {
        v.f32()[i] = 0.01f * static_cast<float>(i);
        double mean = 0;
        const std::vector<float> g = values(x.g);
        const auto at = [&, row = i](std::int64_t j) { return static_cast<std::size_t>(row * cols + j); };
        for (std::int64_t j = 0; j < cols; ++j) {
          const double scaled = 0.7 * static_cast<double>(g[at(j)]);
          mean += scaled * scaled / static_cast<double>(cols);
          want_m.push_back(0.9 * static_cast<double>(x.m.f32()[at(j)]) + 0.1 * scaled);
        }
        want_v.push_back(0.999 * static_cast<double>(v.f32()[i]) + 0.001 * mean);
        for (std::int64_t j = 0; j < cols; ++j)
          want.push_back(-0.01 * want_m[at(j)] / (1 - std::pow(0.9, 3)) /
                         (std::sqrt(want_v.back() / (1 - std::pow(0.999, 3))) + 1e-6));
      }
      adam_direction(bench.context, some_step(), {}, x.g, x.m, v);
      testing::expect_close(x.m, want_m, 1e-6);
      testing::expect_close(v, want_v, 1e-6);
      testing::expect_close(x.g, want, g_type == DType::F32 ? 2e-6 : 1.0 / 256);
    }
}

TEST(AdamPerRow, RoundsAsARowOfItsOwn) {
  const Rounding r{true, 42, 9, 1000};
  for (const DType g_type : kTypes) {
    Bench bench;
    const Operands want = operands(bench, {130, 33}, DType::F32, DType::F32, DType::F32);
    const Operands got = operands(bench, {130, 33}, DType::F32, g_type, DType::BF16);
    const Tensor size = bench.make({130}), v = bench.make({130}, DType::BF16);
    for (std::int64_t i = 0; i < 130; ++i) {
      put(v.as<Bf16>()[i], 0.01f * static_cast<float>(i));
      size.f32()[i] = to_float(v.as<Bf16>()[i]);
    }
    adam_direction(bench.context, some_step(), r, want.g, want.m, size);
    adam_direction(bench.context, some_step(), r, got.g, got.m, v);
    EXPECT_TRUE(same_bits(values(got.g), rounded(want.g, g_type, How::Nearest, r)));
    EXPECT_TRUE(same_bits(values(got.m), rounded(want.m, DType::BF16, How::Nearest, r)));
    EXPECT_TRUE(same_bits(values(v), rounded(size, DType::BF16, How::Upper, r)));
  }
}

TEST(ProjectedAdamRounding, MasterWeightsAreTheFloatRunAndWeightsTheirNearest) {
  for (const DType g_type : kTypes)
    for (const bool by_row : {false, true}) {
      const Projection p{ProjectionKind::Gaussian, 42, 5, 1, 70, 19, g_type};
      Bench bench;
      const Operands want = operands(bench, {31, 19}, DType::F32, g_type, DType::BF16);
      const Operands got = operands(bench, {31, 19}, DType::F32, g_type, DType::BF16);
      const Tensor w = bench.random({31, 70}, 1), master = bench.as(w, DType::F32),
                   small = bench.as(w, DType::BF16);
      const Rounding r{true, 42, 9, 1000};
      const auto sizes = [&](const Tensor& v) { return by_row ? bench.random({31}, 1, 0, DType::BF16) : v; };
      projected_adam(bench.context, some_step(), r, p, w, want.g, want.m, sizes(want.v), {});
      projected_adam(bench.context, some_step(), r, p, small, got.g, got.m, sizes(got.v), master);
      EXPECT_TRUE(same_bits(values(master), values(w)));
      EXPECT_TRUE(same_bits(values(small), rounded(w, DType::BF16, How::Nearest, r)));
    }
}

TEST(ProjectedAdamRounding, WeightsAreTheFloatRunRoundedToANeighbour) {
  const Projection p{ProjectionKind::Gaussian, 42, 5, 1, 70, 19};
  for (const bool stochastic : {false, true}) {
    const Rounding r{stochastic, 42, 9, 1000};
    Bench bench;
    const Operands want = operands(bench, {31, 19}, DType::F32, DType::F32, DType::F32);
    const Operands got = operands(bench, {31, 19}, DType::F32, DType::F32, DType::F32);
    const Tensor small = bench.random({31, 70}, 1, 1, DType::BF16), w = bench.as(small, DType::F32);
    projected_adam(bench.context, some_step(), r, p, w, want.g, want.m, want.v, {});
    projected_adam(bench.context, some_step(), r, p, small, got.g, got.m, got.v, {});
    EXPECT_TRUE(same_bits(values(got.m), values(want.m)));
    const std::vector<float> exact = values(w), rough = values(small);
    double apart = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const float allowed = std::abs(exact[i]) / (stochastic ? 128 : 256) + 1e-6f;
      EXPECT_NEAR(rough[i], exact[i], allowed) << i;
      apart += std::abs(static_cast<double>(rough[i] - exact[i]));
    }
    EXPECT_GT(apart, 0);
  }
}

TEST(AdamRounding, SameBitsForAnyThreads) {
  testing::expect_same_bits_for_any_threads([&] {
    Bench bench;
    const Operands a = operands(bench, {131, 257}, DType::BF16, DType::F32, DType::BF16);
    const Operands b = operands(bench, {131, 257}, DType::F32, DType::BF16, DType::BF16);
    const Tensor v = bench.random({131}, 1, 0, DType::BF16), master = bench.random({131, 257}, 5);
    const Rounding r{true, 42, 9, 1000};
    adamw(bench.context, some_step(), r, a.w, b.w, a.m, a.v, {});
    adamw(bench.context, some_step(), r, a.w, b.w, a.m, a.v, master);
    adam_direction(bench.context, some_step(), r, a.g, a.m, a.v);
    adam_direction(bench.context, some_step(), r, b.g, b.m, v);
    std::vector<float> out;
    for (const Tensor& t : {a.w, a.g, a.m, a.v, b.g, b.m, v, master})
      for (const float x : values(t)) out.push_back(x);
    return out;
  });
}

TEST(AdamRounding, ADeviceGivesTheBitsOfTheCpu) {
  if (!testing::on_cuda()) GTEST_SKIP() << "the CPU is the other side";
  const Rounding r{true, 42, 9, 1000};
  for (const DType w_type : kTypes)
    for (const DType s_type : kTypes) {
      const auto run = [&](Bench&& bench) {
        const Operands a = operands(bench, {7, 213}, w_type, DType::F32, s_type);
        const Operands b = operands(bench, {7, 213}, w_type, w_type, s_type);
        adamw(bench.context, some_step(), r, a.w, a.g, a.m, a.v, {});
        adam_direction(bench.context, some_step(), r, b.g, b.m, b.v);
        std::vector<float> out;
        for (const Tensor& t : {a.w, a.m, a.v, b.g, b.m, b.v})
          for (const float x : values(t)) out.push_back(x);
        return out;
      };
      EXPECT_TRUE(same_bits(run(Bench()), run(Bench(Device::Cpu))));
    }
}

// The loops of both instruction sets on the same values; everything they write, one after another.
template <typename W, typename G, typename S>
std::vector<float> on(Isa isa, const Rounding& r) {
  Bench bench;
  const auto type = [](auto zero) { return sizeof(zero) == 2 ? DType::BF16 : DType::F32; };
  const std::int64_t rows = 7, cols = 213;
  const Operands x = operands(bench, {rows, cols}, type(W{}), type(G{}), type(S{}));
  const Tensor master = bench.random({rows, cols}, 5), v = bench.random({rows}, 6, 0, type(S{}));
  W* w = x.w.as<W>();
  G* g = x.g.as<G>();
  S *m = x.m.as<S>(), *second = x.v.as<S>(), *by_row = v.as<S>();
  const AdamStep step = some_step();
  std::vector<float> out;
  const auto keep = [&](const Tensor& t) {
    for (const float value : values(t)) out.push_back(value);
  };
  const auto run = [&](auto update, auto direction, auto direction_by_row) {
    update(step, r, w, nullptr, g, m, second, rows, cols);
    keep(x.w);
    update(step, r, w, master.f32(), g, m, second, rows, cols);
    direction(step, r, g, m, second, rows, cols);
    keep(x.g);
    direction_by_row(step, r, g, m, by_row, rows, cols);
  };
  if (isa == Isa::Avx2)
    run(cpu::avx2::adam_update<W, G, S>, cpu::avx2::adam_direction<G, S>,
        cpu::avx2::adam_direction_by_row<G, S>);
  else
    run(cpu::avx512::adam_update<W, G, S>, cpu::avx512::adam_direction<G, S>,
        cpu::avx512::adam_direction_by_row<G, S>);
  for (const Tensor& t : {x.w, x.g, x.m, x.v, v, master}) keep(t);
  return out;
}

template <typename W, typename G, typename S>
void expect_same_on_both() {
  for (const bool stochastic : {false, true}) {
    const Rounding r{stochastic, 42, 9, 1000};
    EXPECT_TRUE(same_bits(on<W, G, S>(Isa::Avx2, r), on<W, G, S>(Isa::Avx512, r)));
  }
}

TEST(Adam, SameBitsOnEveryInstructionSet) {
  if (testing::on_cuda()) GTEST_SKIP() << "about the CPU's loops";
  if (cpu_isa() != Isa::Avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  expect_same_on_both<float, float, float>();
  expect_same_on_both<float, float, Bf16>();
  expect_same_on_both<float, Bf16, float>();
  expect_same_on_both<float, Bf16, Bf16>();
  expect_same_on_both<Bf16, float, float>();
  expect_same_on_both<Bf16, float, Bf16>();
  expect_same_on_both<Bf16, Bf16, float>();
  expect_same_on_both<Bf16, Bf16, Bf16>();
}

}  // namespace
}  // namespace compact
