#include "compact/kernels/attention.h"

#include "unit/kernels/attention_testing.h"

namespace compact {
namespace {
using namespace testing;

std::string name(const AttentionShape& s) {
  return fmt::format("B {} T {} H {} Hkv {} D {} Tkv {}", s.B, s.T, s.H, s.Hkv, s.D, s.Tkv);
}

// B, T, H, Hkv, D, Tkv: one of all, below, at and beyond the tiles (64) and blocks (256), tails of vectors.
const AttentionShape kTraining[] = {
    {1, 1, 1, 1, 1, 1},      {2, 5, 4, 2, 8, 5},     {1, 17, 3, 1, 3, 17},    {1, 64, 2, 2, 16, 64},
    {1, 65, 2, 1, 17, 65},   {2, 63, 2, 2, 33, 63},  {1, 130, 4, 2, 64, 130}, {1, 200, 1, 1, 80, 200},
    {1, 257, 2, 1, 31, 257}, {1, 70, 1, 1, 256, 70}, {1, 129, 2, 2, 48, 129}, {1, 66, 1, 1, 96, 66},
    {2, 300, 4, 2, 16, 300}, {1, 600, 2, 1, 8, 600},
};
const AttentionShape kGeneration[] = {
    {1, 1, 2, 1, 16, 2},    {2, 1, 4, 2, 33, 100},   {1, 3, 2, 2, 8, 65},
    {1, 70, 2, 1, 24, 200}, {1, 130, 1, 1, 64, 191},
};

// Heads as tensor cores take them: widths that fill their tiles and that do not, queries below, at and beyond
// the tiles (64, 128) and steps (32), groups of 1, 2 and 4.
const AttentionShape kAlignedTraining[] = {
    {1, 1, 2, 1, 64, 1},     {2, 70, 4, 4, 32, 70},   {1, 130, 4, 2, 40, 130},
    {1, 161, 4, 1, 64, 161}, {1, 70, 2, 1, 96, 70},   {1, 95, 2, 2, 128, 95},
    {1, 64, 4, 1, 128, 64},  {1, 128, 1, 1, 64, 128}, {1, 200, 2, 1, 8, 200},
};
const AttentionShape kAlignedGeneration[] = {
    {1, 1, 4, 1, 64, 100},
    {2, 5, 2, 1, 96, 70},
    {1, 70, 2, 1, 128, 133},
    {1, 130, 2, 2, 40, 191},
};

const DType kTypes[] = {DType::F32, DType::BF16};
/// Type, padding.
const std::pair<DType, std::int64_t> kKinds[] = {
    {DType::F32, kOdd}, {DType::BF16, kOdd}, {DType::BF16, kAligned}};

/// What a type may cost: of a row's largest, and absolutely.
struct Tolerance {
  double out, lse, gradient, absolute;
};
Tolerance tolerance_of(DType type) {
  if (type == DType::F32) return {3e-6, 2e-6, 5e-6, 4e-6};
  // Results are rounded to 2^-9, and so are the weights and slopes that enter products; delta comes from the
  // rounded output. Scores are sums of exact products, so lse has the precision of fp32.
  return {0.006, 4e-6, 0.012, 0.006};
}

void expect_gradients(const AttentionCase& c, const PlainAttention& want) {
  const Tolerance t = tolerance_of(c.q.dtype);
  expect_close(c.dq, want.dq, t.gradient, t.absolute);
  expect_close(c.dk, want.dk, t.gradient, t.absolute);
  expect_close(c.dv, want.dv, t.gradient, t.absolute);
  expect_padding_untouched(c.dq, c.padding);
}

void expect_outputs(const AttentionCase& c, const PlainAttention& want) {
  const Tolerance t = tolerance_of(c.q.dtype);
  expect_close(c.out, want.out, t.out, 1e-6);
  expect_close(c.lse, want.lse, t.lse, 1e-6);
  expect_padding_untouched(c.out, c.padding);
}

void check_training(const AttentionShape& shape, DType type, std::int64_t padding) {
  SCOPED_TRACE(name(shape));
  Bench bench(test_device(), small_capacity());
  const AttentionCase c(bench, shape, type, padding);
  const PlainAttention want = plain_attention(c);
  c.forward(bench.context);
  c.backward(bench.context);
  expect_outputs(c, want);
  expect_gradients(c, want);
}

void check_generation(const AttentionShape& shape, DType type, std::int64_t padding,
                      std::int64_t capacity = small_capacity()) {
  SCOPED_TRACE(name(shape));
  Bench bench(test_device(), capacity);
  const AttentionCase c(bench, shape, type, padding);
  const PlainAttention want = plain_attention(c);
  c.forward(bench.context);
  expect_outputs(c, want);
}

class AttentionOfType : public ::testing::TestWithParam<DType> {};
TEST_P(AttentionOfType, TrainingEqualsPlainLoops) {
  for (const AttentionShape& shape : kTraining) check_training(shape, GetParam(), kOdd);
}
TEST_P(AttentionOfType, GenerationEqualsPlainLoops) {
  for (const AttentionShape& shape : kGeneration) check_generation(shape, GetParam(), kOdd);
}
INSTANTIATE_TEST_SUITE_P(Types, AttentionOfType, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST(Attention, AlignedTrainingEqualsPlainLoops) {
  for (const AttentionShape& shape : kAlignedTraining) check_training(shape, DType::BF16, kAligned);
}
TEST(Attention, AlignedGenerationEqualsPlainLoops) {
  for (const AttentionShape& shape : kAlignedGeneration) check_generation(shape, DType::BF16, kAligned);
}

TEST(Attention, LongHeadsTakeTurns) {
  // On a CUDA device two of these heads go side by side, and the third is left over.
  check_generation({1, 17, 3, 1, 256, 2048}, DType::F32, kOdd, std::int64_t{16} << 20);
}

TEST(Attention, OneUnalignedViewIsEnough) {
  // Each view in turn starts in the middle of 16 bytes: the results stay within rounding.
  const AttentionShape s{1, 40, 2, 1, 32, 40};
  for (int which = 0; which < 8; ++which) {
    SCOPED_TRACE(which);
    Bench bench(test_device(), small_capacity());
    AttentionCase c(bench, s, DType::BF16, kAligned);
    Tensor* const view =
        std::array{&c.q, &c.k, &c.v, &c.out, &c.dout, &c.dq, &c.dk, &c.dv}[static_cast<std::size_t>(which)];
    const Tensor odd = bench.strided({view->rows(), view->cols()}, which % 2 == 0 ? 4 : kOdd, DType::BF16);
    set_values(odd, values(*view));
    *view = odd;
    const PlainAttention want = plain_attention(c);
    c.forward(bench.context);
    c.backward(bench.context);
    const Tolerance t = tolerance_of(DType::BF16);
    expect_close(c.out, want.out, t.out, 1e-6);
    expect_close(c.dq, want.dq, t.gradient, t.absolute);
    expect_close(c.dk, want.dk, t.gradient, t.absolute);
    expect_close(c.dv, want.dv, t.gradient, t.absolute);
  }
}

TEST(Attention, LargeScoresStayExact) {
  // Scores that rise from tile to tile, and far: each row takes a new reference many times.
  for (const auto& [type, padding] : kKinds) {
    Bench bench;
    const std::int64_t D = 8;
    const AttentionCase c(bench, {1, 200, 1, 1, D, 200}, type, padding);
    for (std::int64_t t = 0; t < 200; ++t)
      for (std::int64_t d = 0; d < D; ++d) {
        Bench::set(c.q, t * c.q.ld + d, 8);
        Bench::set(c.k, t * c.k.ld + d, static_cast<float>(t) / 4);
      }
    const PlainAttention want = plain_attention(c);
    c.forward(bench.context);
    expect_outputs(c, want);
  }
}

TEST(Attention, NoMemoryOfOtherTilesLeaksIn) {
  // The tiles are scratch: whatever it held before, infinities and NaN too, must not reach a result.
  // Of an odd number of queries the last one has no partner in a pair.
  for (const auto& [type, padding] : kKinds)
    for (const std::int64_t T : {std::int64_t{type == DType::F32 ? 70 : 71}, std::int64_t{7}}) {
      const std::int64_t D = padding == kAligned ? 24 : 21;
      const AttentionShape shape{1, T, 2, 1, D, T};
      std::vector<float> first;
      for (float poison : {0.0f, NAN, INFINITY, -1e30f}) {
        Bench bench(test_device(), small_capacity());
        const AttentionCase c(bench, shape, type, padding);
        {
          const ScratchScope scope(bench.arena);
          const Tensor t = bench.arena.scratch("poison", {1 << 20}, DType::F32);
          for (std::int64_t i = 0; i < t.elements(); ++i) t.f32()[i] = poison;
        }
        c.forward(bench.context);
        c.backward(bench.context);
        if (first.empty()) first = c.results(true);
        EXPECT_TRUE(same_bits(c.results(true), first)) << poison;
      }
    }
}

TEST(Attention, GradientEqualsDifferenceQuotient) {
  Bench bench;
  const AttentionCase c(bench, {2, 70, 4, 2, 12, 70});
  const std::vector<float> weights = values(c.dout);
  const auto loss = [&] {
    c.forward(bench.context);
    return dot(values(c.out), weights);
  };
  loss();
  c.backward(bench.context);
  expect_gradient(c.q, values(c.dq), loss);
  expect_gradient(c.k, values(c.dk), loss);
  expect_gradient(c.v, values(c.dv), loss);
}

TEST(Attention, IsTheSameForAnyThreadsAndEachTime) {
  const std::vector<std::int64_t> lengths =
      on_cuda() ? std::vector<std::int64_t>{135} : std::vector<std::int64_t>{150, 330};
  for (const auto& [type, padding] : kKinds)
    for (std::int64_t T : lengths)
      expect_same_bits_for_any_threads([&, type = type, padding = padding] {
        Bench bench(test_device(), small_capacity());
        const AttentionCase c(bench, {on_cuda() ? 1 : 2, T, 4, 2, 24, T}, type, padding);
        c.forward(bench.context);
        c.backward(bench.context);
        return c.results(true);
      });
}

TEST(Attention, AFutureTokenChangesNoBit) {
  for (const auto& [type, padding] : kKinds) {
    Bench bench(test_device(), small_capacity());
    const AttentionCase c(bench, {1, 100, 2, 1, 16, 100}, type, padding);
    c.forward(bench.context);
    const std::vector<float> past = values(c.out.row_range(0, 80));
    for (const Tensor& t : {c.k, c.v}) bench.randomize(t.row_range(80, 20), 9, 50);
    c.forward(bench.context);
    EXPECT_TRUE(same_bits(values(c.out.row_range(0, 80)), past));
  }
}

TEST(Attention, Bf16SumsOverKeysInFp32) {
  // From the same inputs fp32 tensors give nearly the exact sums. Rounded once at the end, bf16 is within
  // half a unit of them but for the rounding of weights and slopes, which averages out over 4000 keys; a dq
  // that grows in bf16 is further off.
  Bench bench;
  const std::int64_t T = on_cuda() ? 700 : 4000;
  const AttentionShape s{1, T, 1, 1, 8, T};
  const AttentionCase c(bench, s, DType::BF16, kAligned), exact(bench, s);
  for (const auto& [from, to] : {std::pair(&c.q, &exact.q), std::pair(&c.k, &exact.k),
                                 std::pair(&c.v, &exact.v), std::pair(&c.dout, &exact.dout)})
    set_values(*to, values(*from));
  for (const AttentionCase* one : {&c, &exact}) {
    one->forward(bench.context);
    one->backward(bench.context);
  }
  const auto error = [](const Tensor& got, const Tensor& want) {
    double square = 0, size = 0;
    const std::vector<float> g = values(got), w = values(want);
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double difference = static_cast<double>(g[i]) - static_cast<double>(w[i]);
      square += difference * difference;
      size += static_cast<double>(w[i]) * static_cast<double>(w[i]);
    }
    return std::sqrt(square / size);
  };
  EXPECT_LT(error(c.out, exact.out), 0.0025);
  EXPECT_LT(error(c.dq, exact.dq), 0.003);
  EXPECT_LT(error(c.dk, exact.dk), 0.003);
  EXPECT_LT(error(c.dv, exact.dv), 0.003);
}

void check_numeric(const char* file, DType type) {
  COMPACT_NUMERIC_CASE(numeric, file);
  SCOPED_TRACE(file);
  const nlohmann::json &in = numeric["inputs"], &expected = numeric["expected"];
  const auto dim = [](const nlohmann::json& t, int i) {
    return t["shape"][static_cast<std::size_t>(i)].get<std::int64_t>();
  };
  const AttentionShape s{dim(in["q"], 0), dim(in["q"], 1), dim(in["q"], 2),
                         dim(in["k"], 2), dim(in["q"], 3), dim(in["k"], 1)};
  Bench bench;
  const AttentionCase c(bench, s, type);
  const auto set = [](const Tensor& t, const std::vector<double>& from) {
    set_values(t, {from.begin(), from.end()});
  };
  set(c.q, numbers(in["q"]));
  set(c.k, numbers(in["k"]));
  set(c.v, numbers(in["v"]));
  set(c.dout, numbers(in["dout"]));
  c.forward(bench.context);
  c.backward(bench.context);
  const char* precision = type == DType::F32 ? "fp32" : "bf16";
  const double tolerance = numeric["tolerance"][precision];
  const auto absolute = [&](const char* key) {
    const auto all = numeric.value("absolute", nlohmann::json::object());
    return all.value(precision, nlohmann::json::object()).value(key, 0.0);
  };
  for (const auto& [key, tensor, row] :
       {std::tuple("out", &c.out, s.D), std::tuple("lse", &c.lse, s.T), std::tuple("dq", &c.dq, s.D),
        std::tuple("dk", &c.dk, s.D), std::tuple("dv", &c.dv, s.D)}) {
    SCOPED_TRACE(key);
    expect_close(*tensor, numbers(expected[key]), tolerance, absolute(key), row);
  }
}

class AttentionNumeric : public ::testing::TestWithParam<DType> {};
TEST_P(AttentionNumeric, T1) { check_numeric("attention_t1", GetParam()); }
TEST_P(AttentionNumeric, T5) { check_numeric("attention_t5", GetParam()); }
TEST_P(AttentionNumeric, T17) { check_numeric("attention_t17", GetParam()); }
TEST_P(AttentionNumeric, MhaT5) { check_numeric("attention_mha_t5", GetParam()); }
TEST_P(AttentionNumeric, LargeLogits) { check_numeric("attention_large_logits", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Types, AttentionNumeric, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST(Attention, CountsTheProductsOfVisiblePositions) {
  Bench bench;
  const AttentionShape s{2, 5, 4, 2, 8, 5};
  const AttentionCase c(bench, s);
  const std::int64_t pairs = 2 * 4 * (5 * 6 / 2);
  c.forward(bench.context);
  EXPECT_EQ(bench.context.flops.attention, 4 * 8 * pairs);
  c.backward(bench.context);
  EXPECT_EQ(bench.context.flops.attention, 12 * 8 * pairs);
  // One query that sees 7 keys.
  Bench generation;
  AttentionCase(generation, {1, 1, 4, 2, 8, 7}).forward(generation.context);
  EXPECT_EQ(generation.context.flops.attention, 4 * 8 * 4 * 7);
  EXPECT_EQ(generation.context.flops.gemm, 0);
}

TEST(Attention, PlanEqualsRun) {
  for (const auto& [type, padding] : kKinds)
    for (const AttentionShape& s :
         {AttentionShape{2, 70, 4, 2, 20, 70}, {1, on_cuda() ? 130 : 300, 4, 1, 24, on_cuda() ? 130 : 300}}) {
      expect_plan_equals_run([&, type = type, padding = padding](Bench& bench) {
        AttentionCase(bench, s, type, padding).forward(bench.context);
      });
      expect_plan_equals_run([&, type = type, padding = padding](Bench& bench) {
        const AttentionCase c(bench, s, type, padding);
        c.forward(bench.context);
        c.backward(bench.context);
      });
    }
}

TEST(Attention, TellsTheClockWhatItMoves) {
  Bench bench;
  OpClock clock;
  bench.context.clock = &clock;
  const AttentionCase c(bench, {1, 5, 4, 2, 8, 5}, DType::BF16);
  c.forward(bench.context);
  const std::int64_t wide = 5 * 32 * 2, narrow = 5 * 16 * 2, lse = 4 * 5 * 4;
  EXPECT_EQ(clock.of(Op::Attention).calls, 1);
  EXPECT_EQ(clock.of(Op::Attention).bytes, 2 * wide + 2 * narrow + lse);
  c.backward(bench.context);
  EXPECT_EQ(clock.of(Op::Attention).calls, 2);
  EXPECT_EQ(clock.of(Op::Attention).bytes, 6 * wide + 6 * narrow + 2 * lse);
}

TEST(Attention, SaysHowWideAHeadMayBeOnCuda) {
  if (!on_cuda()) GTEST_SKIP() << "CPUs take heads of any width";
  Bench bench;
  const AttentionCase c(bench, {1, 2, 1, 1, 257, 2});
  EXPECT_THROW(c.forward(bench.context), InputError);
  EXPECT_THROW(c.backward(bench.context), InputError);
}

TEST(Attention, RefusesShapesThatDoNotMatch) {
  Bench bench;
  AttentionCase c(bench, {1, 4, 4, 2, 8, 4});
  c.s.Hkv = 3;
  EXPECT_THROW(c.forward(bench.context), std::logic_error);
  c.s.Hkv = 2;
  c.s.Tkv = 3;
  EXPECT_THROW(c.forward(bench.context), std::logic_error);
  AttentionCase longer(bench, {1, 4, 4, 2, 8, 6});
  longer.forward(bench.context);
  EXPECT_THROW(longer.backward(bench.context), std::logic_error);
  AttentionCase mixed(bench, {1, 4, 4, 2, 8, 4});
  mixed.dq = bench.make({4, 32}, DType::BF16);
  EXPECT_THROW(mixed.backward(bench.context), std::logic_error);
  mixed.out = mixed.dq;
  EXPECT_THROW(mixed.forward(bench.context), std::logic_error);
}

}  // namespace
}  // namespace compact
