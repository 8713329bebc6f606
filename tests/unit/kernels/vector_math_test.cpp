#include "kernels/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace compact {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// |got - want| in units in the last place of want.
double ulps(float got, double want) {
  const float nearest = static_cast<float>(want);
  const double ulp = static_cast<double>(std::nextafter(nearest, kInf)) - static_cast<double>(nearest);
  return std::abs(static_cast<double>(got) - want) / ulp;
}

TEST(VectorMath, ExpIsPreciseOverItsRange) {
  double worst = 0;
  for (double x = -87.3; x < 88.72; x += 0.0017) {
    const float f = static_cast<float>(x);
    worst = std::max(worst, ulps(cpu::vexp(f), std::exp(static_cast<double>(f))));
  }
  EXPECT_LT(worst, 1.1);
}

TEST(VectorMath, Exp2IsPreciseOverItsRange) {
  double worst = 0;
  for (double x = -100; x < 126.9; x += 0.0019) {
    const float f = static_cast<float>(x);
    worst = std::max(worst, ulps(cpu::vexp2(f), std::exp2(static_cast<double>(f))));
  }
  EXPECT_LT(worst, 1.1);
}

TEST(VectorMath, ExpEndsInZeroAndInfinity) {
  for (float x : {-87.34f, -100.0f, -1e4f, -1e30f, -kInf}) EXPECT_EQ(cpu::vexp(x), 0.0f) << x;
  for (float x : {88.73f, 100.0f, 1e30f, kInf}) EXPECT_EQ(cpu::vexp(x), kInf) << x;
  for (float x : {-100.1f, -1e4f, -1e30f, -kInf}) EXPECT_EQ(cpu::vexp2(x), 0.0f) << x;
  EXPECT_EQ(cpu::vexp(0.0f), 1.0f);
  EXPECT_EQ(cpu::vexp2(0.0f), 1.0f);
  EXPECT_EQ(cpu::vexp2(-10.0f), 0.0009765625f);
}

TEST(VectorMath, NaNStaysNaN) {
  for (std::uint32_t bits : {0x7fc00000u, 0xffffffffu, 0x7fffffffu, 0x7fc00100u}) {
    float x = 0;
    std::memcpy(&x, &bits, sizeof x);
    EXPECT_TRUE(std::isnan(cpu::vexp(x)));
    EXPECT_TRUE(std::isnan(cpu::vexp2(x)));
    EXPECT_TRUE(std::isnan(cpu::vsigmoid(x)));
  }
}

TEST(VectorMath, SigmoidIsPreciseInBothTails) {
  double worst = 0;
  for (double x = -87; x < 100; x += 0.0031) {
    const float f = static_cast<float>(x);
    worst = std::max(worst, ulps(cpu::vsigmoid(f), 1 / (1 + std::exp(-static_cast<double>(f)))));
  }
  EXPECT_LT(worst, 3);
  for (float x : {-89.0f, -90.0f, -1e4f, -1e30f, -kInf}) EXPECT_EQ(cpu::vsigmoid(x), 0.0f) << x;
  for (float x : {20.0f, 64.0f, 65.0f, 1e4f, 1e30f, kInf}) EXPECT_EQ(cpu::vsigmoid(x), 1.0f) << x;
  for (float x : {0.0f, -0.0f, 1e-40f, -1e-40f}) EXPECT_EQ(cpu::vsigmoid(x), 0.5f) << x;
}

}  // namespace
}  // namespace compact
