#include "compact/core/philox.h"

#include <algorithm>
#include <numbers>

#include "compact/core/error.h"
#include "compact/kernels/elementwise.h"
#include "kernels/normal_cpu.h"
#include "kernels/normal_cuda.h"
#include "kernels/normal_math.h"
#include "unit/kernels/op_testing.h"

namespace compact {
namespace {

using testing::Bench;
using testing::same_bits;
using testing::values;

constexpr std::uint64_t kKey = 0x0123456789abcdefULL;

/// The deviate (i, j) of a row-major matrix, from one Philox block at a time.
float deviate(std::int64_t i, std::int64_t j, std::uint32_t word2, std::uint32_t word3, std::uint64_t key) {
  const auto w =
      philox({static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(i), word2, word3}, key);
  const std::size_t first = j % 4 < 2 ? 0 : 2;
  float a = 0, b = 0;
  normal_pair(w[first], w[first + 1], a, b);
  return j % 2 == 0 ? a : b;
}

/// Words for accuracy tests: both ends of the range, all powers of two with their neighbours, and many
/// others.
std::vector<std::uint32_t> words() {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < 1000; ++i) out.insert(out.end(), {i, ~i});
  for (int bit = 0; bit < 32; ++bit)
    for (std::uint32_t d = 0; d < 7; ++d) out.push_back((1u << bit) + d - 3u);
  // Around u = sqrt(1/2), where the two forms of the logarithm meet.
  for (std::uint32_t d = 0; d < 2000; ++d) out.push_back(3037000500u - 1000u + d);
  std::mt19937 generator(7);
  for (int i = 0; i < 200000; ++i) out.push_back(static_cast<std::uint32_t>(generator()));
  return out;
}

TEST(Philox, NumericCase) {
  COMPACT_NUMERIC_CASE(numeric, "philox");
  const auto& rows = numeric["inputs"]["rows"];
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto counter = rows[i]["counter"].get<std::array<std::uint32_t, 4>>();
    const auto key = rows[i]["key"].get<std::array<std::uint32_t, 2>>();
    EXPECT_EQ(philox(counter, key[0] | std::uint64_t{key[1]} << 32),
              (numeric["expected"]["rows"][i].get<std::array<std::uint32_t, 4>>()))
        << "row " << i;
  }
}

TEST(Philox, PublishedVectors) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, ~std::uint64_t{0}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
}

TEST(Normal, UniformToNormalNumericCase) {
  COMPACT_NUMERIC_CASE(numeric, "uniform_to_normal");
  const auto word = numeric["inputs"]["word"].get<std::vector<std::uint32_t>>();
  const auto u = numeric["expected"]["u"].get<std::vector<double>>();
  const auto radius = numeric["expected"]["radius"].get<std::vector<double>>();
  for (std::size_t i = 0; i < word.size(); ++i) {
    testing::expect_close({unit_from_word(word[i])}, {u[i]}, 1, 1e-5);
    // The absolute part of the case is not needed: the radius is good to the last digits near u = 1 as well.
    testing::expect_close({radius_from_word(word[i])}, {radius[i]}, 1, 1e-6);
    EXPECT_LE(radius_from_word(word[i]), 6.7638f);
  }
}

TEST(Normal, AgreesWithTheFormulaInDouble) {
  double worst_radius = 0, worst_turn = 0;
  for (const std::uint32_t w : words()) {
    const double u = (w + 0.5) * 0x1p-32;
    // log1p keeps the digits of 1 - u, which double can hold exactly here.
    const double radius = std::sqrt(-2 * (u < 0.5 ? std::log(u) : std::log1p(-(1 - u))));
    const double got = static_cast<double>(radius_from_word(w));
    ASSERT_TRUE(std::isfinite(got) && got > 0 && got <= 6.7638) << "word " << w;
    worst_radius = std::max(worst_radius, std::abs(got - radius) / radius);
    float cosine = 0, sine = 0;
    turn_from_word(w, cosine, sine);
    const double angle = 2 * std::numbers::pi * u;
    worst_turn = std::max({worst_turn, std::abs(static_cast<double>(cosine) - std::cos(angle)),
                           std::abs(static_cast<double>(sine) - std::sin(angle))});
  }
  EXPECT_LT(worst_radius, 3e-7);
  EXPECT_LT(worst_turn, 2e-7);
}

TEST(Normal, RowsAreTheDeviatesOfTheirBlocks) {
  // Tails of the 64 that are made together, a block cut in the middle, rows that do not start at 0.
  for (const std::int64_t cols : {1, 2, 3, 5, 63, 64, 65, 130}) {
    const std::int64_t rows = 3, ld = cols + 2, first = 4000000000;
    std::vector<float> got(static_cast<std::size_t>(rows * ld), -7.0f);
    COMPACT_CALL(normal_rows, got.data(), ld, first, rows, cols, 0.5f, kKey, 11, 13);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < ld; ++j) {
        const float value = got[static_cast<std::size_t>(i * ld + j)];
        const float want = j < cols ? 0.5f * deviate(first + i, j, 11, 13, kKey) : -7.0f;
        ASSERT_EQ(value, want) << "cols " << cols << " at " << i << ", " << j;
      }
  }
}

TEST(Normal, SameBitsOnEveryInstructionSet) {
  if (cpu_isa() != Isa::Avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  const std::int64_t rows = 700, cols = 1013;
  std::vector<float> a(static_cast<std::size_t>(rows * cols)), b(a);
  cpu::avx2::normal_rows(a.data(), cols, 0, rows, cols, 0.03f, kKey, 5, 9);
  cpu::avx512::normal_rows(b.data(), cols, 0, rows, cols, 0.03f, kKey, 5, 9);
  EXPECT_TRUE(same_bits(a, b));
}

TEST(Normal, CudaMakesTheBitsOfTheCpu) {
  if (!testing::on_cuda()) GTEST_SKIP() << "about the CUDA device";
  Bench bench;
  // Whole vectors and cut ones, aligned views and others.
  for (const std::int64_t cols : {1, 3, 4, 64, 130, 1028})
    for (const std::int64_t padding : {0, 1, 8})
      for (const auto& [type, through_bf16] :
           {std::pair{DType::F32, false}, {DType::F32, true}, {DType::BF16, false}}) {
        const std::int64_t rows = 3, first = 4000000000;
        const Tensor tile = bench.strided({rows, cols}, padding, type);
        cuda::normal_rows(*bench.queue, tile, first, 0.5f, kKey, 11, 13, through_bf16);
        std::vector<float> want(static_cast<std::size_t>(rows * cols));
        COMPACT_CALL(normal_rows, want.data(), cols, first, rows, cols, 0.5f, kKey, 11, 13);
        if (through_bf16 || type == DType::BF16)
          for (float& x : want) x = to_float(nearest_bf16(x));
        EXPECT_TRUE(same_bits(values(tile), want)) << cols << " columns, padding " << padding;
        testing::expect_padding_untouched(tile, padding);
      }
}

TEST(FillNormal, IsPhiloxOfItsCounter) {
  Bench bench;
  const Tensor x = bench.make({5, 11});
  fill_normal(bench.context, x, 0.02f, kKey, 77);
  for (std::int64_t i = 0; i < 5; ++i)
    for (std::int64_t j = 0; j < 11; ++j)
      ASSERT_EQ(x.f32()[i * 11 + j], 0.02f * deviate(i, j, 0, stream_word(Stream::Init, 77), kKey));
}

TEST(FillNormal, HasTheMomentsOfANormal) {
  Bench bench;
  const Tensor x = bench.make({1000, 1000});
  fill_normal(bench.context, x, 0.02f, 42, 3);
  double sum = 0, square = 0, fourth = 0, neighbours = 0, before = 0;
  for (const float value : values(x)) {
    const double d = static_cast<double>(value) / 0.02;
    sum += d, square += d * d, fourth += d * d * d * d, neighbours += d * before;
    before = d;
  }
  // Six standard deviations of a million deviates.
  EXPECT_NEAR(sum / 1e6, 0, 6e-3);
  EXPECT_NEAR(square / 1e6, 1, 6e-3 * std::sqrt(2.0));
  EXPECT_NEAR(fourth / 1e6, 3, 6e-3 * std::sqrt(96.0));
  EXPECT_NEAR(neighbours / 1e6, 0, 6e-3);
}

TEST(FillNormal, SameBitsForAnyThreads) {
  Bench bench;
  const Tensor x = bench.make({37, 129});
  testing::expect_same_bits_for_any_threads([&] {
    fill_normal(bench.context, x, 1, 1, 2);
    return values(x);
  });
}

TEST(FillNormal, OtherSeedsAndIdsGiveOtherNumbers) {
  Bench bench;
  const Tensor x = bench.make({4, 64});
  fill_normal(bench.context, x, 1, 1, 2);
  const std::vector<float> first = values(x);
  for (const auto& [seed, id] :
       {std::pair<std::uint64_t, std::uint32_t>{1, 3}, {2, 2}, {1 | 1ULL << 32, 2}}) {
    fill_normal(bench.context, x, 1, seed, id);
    const std::vector<float> other = values(x);
    for (std::size_t i = 0; i < first.size(); ++i) ASSERT_NE(first[i], other[i]) << "seed " << seed;
  }
}

TEST(FillNormal, PlansAndRefuses) {
  Bench plan(Device::Plan);
  fill_normal(plan.context, plan.make({3, 5}, DType::BF16), 1, 1, 1);
  Bench bench;
  EXPECT_THROW(fill_normal(bench.context, bench.make({3, 5}), 1, 1, 1u << 24), std::logic_error);
  EXPECT_THROW(fill_normal(bench.context, bench.make({3, 5}).columns(0, 2), 1, 1, 1), std::logic_error);
  EXPECT_THROW(fill_normal(bench.context, bench.ids({1, 2}), 1, 1, 1), std::logic_error);
}

}  // namespace
}  // namespace compact
