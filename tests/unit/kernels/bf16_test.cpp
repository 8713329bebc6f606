#include "compact/core/bf16.h"

#include "unit/kernels/op_testing.h"

namespace compact {
namespace {
using namespace testing;

std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
float from_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

TEST(Bf16, NumericCaseNearest) {
  COMPACT_NUMERIC_CASE(numeric, "bf16_nearest");
  for (const auto& row : numeric["expected"]["rows"]) {
    const float x = from_bits(row["bits"].get<std::uint32_t>());
    // The case leaves the payload of a NaN open.
    if (std::isnan(x))
      EXPECT_TRUE(std::isnan(to_float(nearest_bf16(x)))) << row;
    else
      EXPECT_EQ(nearest_bf16(x).bits, row["bf16"].get<int>()) << row;
  }
}

TEST(Bf16, NumericCaseStochastic) {
  COMPACT_NUMERIC_CASE(numeric, "bf16_stochastic");
  for (const auto& row : numeric["expected"]["rows"]) {
    const float x = from_bits(row["bits"].get<std::uint32_t>());
    if (std::isnan(x)) {
      for (std::uint32_t random : {0u, 1u, 0xFFFFu, 0xFFFFFFFFu})
        EXPECT_TRUE(std::isnan(to_float(stochastic_bf16(x, random)))) << row;
      continue;
    }
    const int toward = row["toward_zero"], away = row["away_from_zero"];
    int up = 0;
    for (std::uint32_t random = 0; random < 65536; ++random) {
      // What stands in the upper half must not matter.
      const int got = stochastic_bf16(x, random | random << 16).bits;
      ASSERT_TRUE(got == toward || got == away) << row << " with " << random << ": " << got;
      up += got != toward;
    }
    EXPECT_EQ(up, toward == away ? 0 : static_cast<int>(bits_of(x) & 0xFFFFu)) << row;
  }
}

TEST(Bf16, NumericCaseLostUpdates) {
  COMPACT_NUMERIC_CASE(numeric, "bf16_lost_updates");
  const nlohmann::json& in = numeric["inputs"];
  const float step = in["step"];
  const auto run = [&](auto round) {
    double sum = 0;
    const int weights = in["weights"];
    for (int i = 0; i < weights; ++i) {
      Bf16 w = nearest_bf16(in["w0"].get<float>());
      for (int t = 0; t < in["updates"].get<int>(); ++t) w = round(to_float(w) + step);
      sum += static_cast<double>(to_float(w));
    }
    return sum / weights;
  };
  std::mt19937 generator(1);
  EXPECT_EQ(run(nearest_bf16), numeric["expected"]["nearest"]["value"].get<double>());
  const double mean =
      run([&](float x) { return stochastic_bf16(x, static_cast<std::uint32_t>(generator())); });
  const nlohmann::json& expected = numeric["expected"]["stochastic"];
  EXPECT_GE(mean, expected["low"].get<double>());
  EXPECT_LE(mean, expected["high"].get<double>());
}

TEST(Bf16, EveryValueOfItsOwnComesBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const Bf16 x{static_cast<std::uint16_t>(bits)};
    const float value = to_float(x);
    ASSERT_EQ(bits_of(value), bits << 16);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(to_float(nearest_bf16(value))) &&
                  std::isnan(to_float(stochastic_bf16(value, 0xFFFFu))));
      continue;
    }
    ASSERT_EQ(nearest_bf16(value).bits, bits);
    for (std::uint32_t random : {0u, 0x8000u, 0xFFFFu}) ASSERT_EQ(stochastic_bf16(value, random).bits, bits);
  }
}

TEST(Bf16, NearestIsNearestWithTiesToEven) {
  std::mt19937 generator(2);
  for (int i = 0; i < 200000; ++i) {
    auto bits = static_cast<std::uint32_t>(generator());
    if (i % 4 == 0) bits = (bits & 0xFFFF0000u) | 0x8000u;  // a tie
    const float x = from_bits(bits);
    if (!std::isfinite(x)) continue;
    const std::uint32_t below = bits >> 16, above = below + 1;  // in magnitude
    // In double 2^128 stands for the infinite neighbour of the largest values.
    const auto magnitude = [](std::uint32_t half) {
      const float y = std::abs(from_bits(half << 16));
      return std::isinf(y) ? 0x1p128 : static_cast<double>(y);
    };
    const double size = std::abs(static_cast<double>(x)), to_below = size - magnitude(below),
                 to_above = magnitude(above) - size;
    const std::uint32_t want = to_below < to_above   ? below
                               : to_below > to_above ? above
                               : below % 2 == 0      ? below
                                                     : above;
    ASSERT_EQ(nearest_bf16(x).bits, want) << std::hex << bits;
  }
}

}  // namespace
}  // namespace compact
