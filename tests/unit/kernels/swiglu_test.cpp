#include "compact/kernels/swiglu.h"

#include "kernels/swiglu_cpu.h"
#include "unit/kernels/op_testing.h"

namespace compact {
namespace {
using namespace testing;

constexpr std::int64_t kMemory = std::int64_t{8} << 20;  // of a bench: the emulation fills all of it
const std::int64_t kSizes[][2] = {{1, 1}, {3, 7}, {2, 33}, {70, 129}, {5, 64}, {2, 2056}};  // N, F

constexpr DType kTypes[] = {DType::F32, DType::BF16};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct PlainSwiglu {
  std::vector<double> out, activation, dgate_up;
};

PlainSwiglu plain_swiglu(const Tensor& gate_up_, const Tensor& dout_) {
  const std::int64_t N = dout_.rows(), F = dout_.cols();
  const std::vector<float> gate_up = values(gate_up_), dout = values(dout_);
  const auto at = [](const std::vector<float>& t, std::int64_t i) {
    return static_cast<double>(t[static_cast<std::size_t>(i)]);
  };
  PlainSwiglu p;
  p.dgate_up.resize(gate_up.size());
  for (std::int64_t n = 0; n < N; ++n)
    for (std::int64_t f = 0; f < F; ++f) {
      const double g = at(gate_up, 2 * n * F + f), u = at(gate_up, 2 * n * F + F + f),
                   d = at(dout, n * F + f), s = sigmoid(g);
      p.activation.push_back(g * s);
      p.out.push_back(g * s * u);
      p.dgate_up[static_cast<std::size_t>(2 * n * F + f)] = d * u * s * (1 + g * (1 - s));
      p.dgate_up[static_cast<std::size_t>(2 * n * F + F + f)] = d * g * s;
    }
  return p;
}

void expect_plain_swiglu(std::int64_t N, std::int64_t F, std::int64_t padding, DType type) {
  SCOPED_TRACE(fmt::format("N {} F {} padding {} {}", N, F, padding, name_of(type)));
  Bench bench(test_device(), kMemory);
  const Tensor gate_up = bench.strided({N, 2 * F}, padding, type), out = bench.strided({N, F}, padding, type),
               activation = bench.strided({N, F}, padding, type), dout = bench.strided({N, F}, padding, type),
               dgate_up = bench.strided({N, 2 * F}, padding, type);
  bench.randomize(gate_up, 1, 3);
  bench.randomize(dout, 2);
  const PlainSwiglu want = plain_swiglu(gate_up, dout);
  const bool half = type == DType::BF16;
  swiglu_forward(bench.context, gate_up, out, Tensor());
  expect_close(out, want.out, half ? 0x1.01p-9 : 1e-6);
  const std::vector<float> first = values(out);
  swiglu_forward(bench.context, gate_up, out, activation);
  EXPECT_TRUE(same_bits(values(out), first));
  expect_close(activation, want.activation, half ? 0x1.01p-9 : 1e-6);
  swiglu_backward(bench.context, gate_up, Tensor(), dout, dgate_up);
  // Two roundings to bf16: that of silu(gate), then that of the product.
  expect_close(dgate_up, want.dgate_up, half ? 0x1.02p-8 : 2e-6);
  expect_padding_untouched(out, padding);
  expect_padding_untouched(activation, padding);
  expect_padding_untouched(dgate_up, padding);
  const std::vector<float> gradient = values(dgate_up);
  swiglu_backward(bench.context, gate_up, activation, dout, dgate_up);
  EXPECT_TRUE(same_bits(values(dgate_up), gradient));
  swiglu_backward(bench.context, gate_up, Tensor(), dout, gate_up);  // in place
  EXPECT_TRUE(same_bits(values(gate_up), gradient));
}

/// The product that backward makes is forward's, and leaves the gradient as it is, also where both stand in
/// place of their sources.
void expect_product(std::int64_t N, std::int64_t F, std::int64_t padding, DType type, bool with_activation) {
  SCOPED_TRACE(
      fmt::format("N {} F {} padding {} {} activation {}", N, F, padding, name_of(type), with_activation));
  Bench bench(test_device(), kMemory);
  const Tensor gate_up = bench.strided({N, 2 * F}, padding, type), out = bench.strided({N, F}, padding, type),
               made = bench.strided({N, F}, padding, type), dout = bench.strided({N, F}, padding, type),
               dgate_up = bench.strided({N, 2 * F}, padding, type);
  bench.randomize(gate_up, 1, 3);
  bench.randomize(dout, 2);
  const Tensor activation = with_activation ? bench.strided({N, F}, padding, type) : Tensor();
  swiglu_forward(bench.context, gate_up, out, activation);
  swiglu_backward(bench.context, gate_up, activation, dout, dgate_up);
  const std::vector<float> product = values(out), gradient = values(dgate_up);
  Bench::randomize(dgate_up, 3);
  swiglu_backward(bench.context, gate_up, activation, dout, dgate_up, made);
  EXPECT_TRUE(same_bits(values(made), product));
  EXPECT_TRUE(same_bits(values(dgate_up), gradient));
  swiglu_backward(bench.context, gate_up, activation, dout, gate_up, dout);
  EXPECT_TRUE(same_bits(values(dout), product));
  EXPECT_TRUE(same_bits(values(gate_up), gradient));
  for (const Tensor& t : {made, dgate_up, dout, gate_up}) expect_padding_untouched(t, padding);
}

TEST(Swiglu, BackwardMakesTheProductAgain) {
  for (const auto& [N, F] : kSizes)
    for (std::int64_t padding : {0, 3, 8})
      for (DType type : kTypes)
        for (bool with_activation : {false, true}) expect_product(N, F, padding, type, with_activation);
}

TEST(Swiglu, NaNAndInfinityOfTheGatePassOn) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), large = 1e30f;
  for (DType type : kTypes) {
    Bench bench(test_device(), kMemory);
    const Tensor gate_up = bench.as(bench.of({1, 6}, std::vector<float>{nan, large, -large, 2, 2, 2}), type),
                 dout = bench.as(bench.of({1, 3}, std::vector<float>{1, 1, 1}), type);
    swiglu_backward(bench.context, gate_up, Tensor(), dout, gate_up, dout);
    const std::vector<float> product = values(dout), gradient = values(gate_up);
    for (float x : {product[0], gradient[0], gradient[3]}) EXPECT_TRUE(std::isnan(x));
    EXPECT_NEAR(product[1] / large, 2, 0.01);
    EXPECT_EQ(product[2], 0.0f);
    EXPECT_EQ(gradient[1], 2.0f);
    EXPECT_EQ(gradient[2], 0.0f);
  }
}

TEST(Swiglu, EqualsPlainLoopsWithAndWithoutTheActivation) {
  for (const auto& [N, F] : kSizes)
    for (std::int64_t padding : {0, 3, 8})
      for (DType type : kTypes) expect_plain_swiglu(N, F, padding, type);
}

TEST(Swiglu, EveryBf16NaNStaysNaN) {
  constexpr std::int64_t n = 254;  // payloads of both signs
  Bench bench(test_device(), kMemory);
  const Tensor gate_up = bench.make({1, 2 * n}, DType::BF16), dout = bench.make({1, n}, DType::BF16);
  for (std::int64_t i = 0; i < n; ++i) {
    gate_up.as<Bf16>()[i].bits = static_cast<std::uint16_t>((i < 127 ? 0x7F81 : 0xFF81 - 127) + i);
    Bench::set(gate_up, n + i, 2);
    Bench::set(dout, i, 1);
  }
  swiglu_backward(bench.context, gate_up, Tensor(), dout, gate_up, dout);
  for (const Tensor& t : {gate_up, dout})
    for (const float x : values(t)) ASSERT_TRUE(std::isnan(x));
}

TEST(Swiglu, GradientEqualsDifferenceQuotient) {
  Bench bench(test_device(), kMemory);
  const Tensor gate_up = bench.random({5, 34}, 1), out = bench.make({5, 17}), dgate_up = bench.make({5, 34});
  const std::vector<float> weights = random_values(5 * 17, 2);
  swiglu_backward(bench.context, gate_up, Tensor(), bench.of({5, 17}, weights), dgate_up);
  expect_gradient(gate_up, values(dgate_up), [&] {
    swiglu_forward(bench.context, gate_up, out, Tensor());
    return dot(values(out), weights);
  });
}

TEST(Swiglu, IsTheSameForAnyThreads) {
  for (DType type : kTypes) {
    Bench bench(test_device(), kMemory);
    const Tensor gate_up = bench.random({90, 202}, 1, 1, type), out = bench.make({90, 101}, type),
                 dgate_up = bench.make({90, 202}, type);
    expect_same_bits_for_any_threads([&] {
      swiglu_forward(bench.context, gate_up, out, Tensor());
      swiglu_backward(bench.context, gate_up, Tensor(), out, dgate_up, out);
      std::vector<float> all = values(dgate_up);
      for (const float x : values(out)) all.push_back(x);
      return all;
    });
  }
}

template <typename T>
void expect_same_on_both_instruction_sets(DType type) {
  Bench bench(test_device(), kMemory);
  const Tensor gate_up = bench.random({9, 154}, 1, 20, type), out = bench.make({9, 77}, type),
               d = bench.make({9, 154}, type), p = bench.make({9, 77}, type);
  T* const none = nullptr;
  cpu::avx2::swiglu_forward(gate_up.as<T>(), 154, out.as<T>(), 77, none, 0, 9, 77);
  cpu::avx2::swiglu_backward(gate_up.as<T>(), 154, none, 0, out.as<T>(), 77, d.as<T>(), 154, p.as<T>(), 77, 9,
                             77);
  const std::vector<float> small = values(out), small_d = values(d), small_p = values(p);
  cpu::avx512::swiglu_forward(gate_up.as<T>(), 154, out.as<T>(), 77, none, 0, 9, 77);
  cpu::avx512::swiglu_backward(gate_up.as<T>(), 154, none, 0, out.as<T>(), 77, d.as<T>(), 154, p.as<T>(), 77,
                               9, 77);
  EXPECT_TRUE(same_bits(values(out), small));
  EXPECT_TRUE(same_bits(values(d), small_d));
  EXPECT_TRUE(same_bits(values(p), small_p));
}

TEST(Swiglu, BothInstructionSetsGiveTheSameBits) {
  if (on_cuda()) GTEST_SKIP() << "about the CPU's loops";
  if (cpu_isa() != Isa::Avx512) GTEST_SKIP() << "AVX-512 is not there or not chosen";
  expect_same_on_both_instruction_sets<float>(DType::F32);
  expect_same_on_both_instruction_sets<Bf16>(DType::BF16);
}

TEST(Swiglu, NumericCase) {
  COMPACT_NUMERIC_CASE(numeric, "swiglu");
  const nlohmann::json &in = numeric["inputs"], &expected = numeric["expected"];
  const double tolerance = numeric["tolerance"]["fp32"], absolute = absolute_tolerance(numeric, "y");
  const std::int64_t N = in["gate"]["shape"][0];
  Bench bench(test_device(), kMemory);
  const Tensor gate_up = bench.make({N, 2}), out = bench.make({N, 1}), dgate_up = bench.make({N, 2});
  const std::vector<double> gate = numbers(in["gate"]), up = numbers(in["up"]);
  for (std::int64_t n = 0; n < N; ++n) {
    gate_up.f32()[2 * n] = static_cast<float>(gate[static_cast<std::size_t>(n)]);
    gate_up.f32()[2 * n + 1] = static_cast<float>(up[static_cast<std::size_t>(n)]);
  }
  swiglu_forward(bench.context, gate_up, out, Tensor());
  swiglu_backward(bench.context, gate_up, Tensor(), bench.of({N, 1}, numbers(in["dy"])), dgate_up);
  expect_close(out, numbers(expected["y"]), tolerance, absolute);
  expect_close(dgate_up.columns(0, 1), numbers(expected["dgate"]), tolerance, absolute);
  expect_close(dgate_up.columns(1, 1), numbers(expected["dup"]), tolerance, absolute);
}

TEST(Swiglu, PlanEqualsRun) {
  for (DType type : kTypes)
    expect_plan_equals_run([&](Bench& bench) {
      const Tensor gate_up = bench.random({4, 10}, 1, 1, type), out = bench.make({4, 5}, type),
                   activation = bench.make({4, 5}, type);
      swiglu_forward(bench.context, gate_up, out, activation);
      swiglu_backward(bench.context, gate_up, activation, out, gate_up, out);
    });
}

TEST(Swiglu, RefusesMixedTypes) {
  Bench bench(test_device(), kMemory);
  const Tensor gate_up = bench.random({4, 10}, 1), out = bench.make({4, 5}),
               half = bench.make({4, 5}, DType::BF16);
  EXPECT_THROW(swiglu_forward(bench.context, gate_up, half, Tensor()), std::logic_error);
  EXPECT_THROW(swiglu_forward(bench.context, gate_up, out, half), std::logic_error);
  EXPECT_THROW(swiglu_backward(bench.context, gate_up, half, out, gate_up), std::logic_error);
  EXPECT_THROW(swiglu_backward(bench.context, gate_up, Tensor(), out, gate_up, half), std::logic_error);
  EXPECT_THROW(swiglu_backward(bench.context, gate_up, Tensor(), out, gate_up, gate_up), std::logic_error);
}

}  // namespace
}  // namespace compact
