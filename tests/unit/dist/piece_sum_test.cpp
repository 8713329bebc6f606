#include "compact/kernels/piece_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "compact/core/bf16.h"
#include "compact/core/error.h"
#include "kernels/cpu_isa.h"
#include "kernels/piece_sum_cpu.h"

namespace compact {
namespace {

template <typename T>
constexpr DType kType = DType::F32;
template <>
constexpr DType kType<Bf16> = DType::BF16;
template <>
constexpr DType kType<double> = DType::F64;

void set(float& to, double x) { to = static_cast<float>(x); }
void set(double& to, double x) { to = x; }
void set(Bf16& to, double x) { to = nearest_bf16(static_cast<float>(x)); }
double get(float x) { return x; }
double get(double x) { return x; }
double get(Bf16 x) { return to_float(x); }

/// In the order of the pieces, rounded after every addition (BF16 in fp32, and once at the end).
template <typename T>
T plain_sum(const std::vector<std::vector<T>>& pieces, std::size_t i) {
  T sum{};
  if constexpr (std::is_same_v<T, double>) {
    sum = pieces[0][i];
    for (std::size_t k = 1; k < pieces.size(); ++k) sum += pieces[k][i];
  } else {
    volatile float wide = to_float(pieces[0][i]);
    for (std::size_t k = 1; k < pieces.size(); ++k) wide = wide + to_float(pieces[k][i]);
    put(sum, wide);
  }
  return sum;
}

template <typename T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Values of very different sizes, so that every other order of the additions rounds otherwise.
template <typename T>
std::vector<std::vector<T>> random_pieces(std::size_t count, std::size_t n) {
  std::mt19937 generator(static_cast<std::uint32_t>(count * 7919 + n));
  std::normal_distribution<double> normal;
  std::vector<std::vector<T>> pieces(count, std::vector<T>(n));
  for (auto& piece : pieces)
    for (T& x : piece) set(x, normal(generator) * std::exp2(static_cast<int>(generator() % 12)));
  return pieces;
}

template <typename T>
class SumPieces : public ::testing::Test {};
using Types = ::testing::Types<float, Bf16, double>;
TYPED_TEST_SUITE(SumPieces, Types);

// Sizes around the vectors' and the block's (1024); `out` apart or any of the pieces.
TYPED_TEST(SumPieces, AddsInTheOrderOfThePieces) {
  using T = TypeParam;
  constexpr std::size_t kGuards = 40;
  for (const std::size_t count : {1, 2, 3, 4, 5, 9})
    for (const std::size_t n : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, 1000, 1023, 1024, 1025, 3001}) {
      const auto given = random_pieces<T>(count, n);
      std::vector<T> want;
      for (std::size_t i = 0; i < n; ++i) want.push_back(plain_sum(given, i));
      for (std::size_t alias = 0; alias <= count; ++alias) {
        // At odd addresses within a larger array, whose other elements stay.
        std::vector<std::vector<T>> arrays;
        std::vector<Tensor> pieces;
        for (std::size_t k = 0; k <= count; ++k) {
          arrays.emplace_back(n + kGuards);
          for (T& x : arrays.back()) set(x, -77);
          if (k < count) std::copy(given[k].begin(), given[k].end(), arrays.back().begin() + 1);
        }
        for (std::size_t k = 0; k <= count; ++k)
          pieces.emplace_back(arrays[k].data() + 1, Shape{static_cast<std::int64_t>(n)}, kType<T>);
        const Tensor out = pieces[alias];
        pieces.pop_back();
        sum_pieces(pieces, out);
        EXPECT_EQ(get(arrays[alias][0]), -77);
        for (std::size_t i = n + 1; i < arrays[alias].size(); ++i) ASSERT_EQ(get(arrays[alias][i]), -77);
        const std::vector<T> got(arrays[alias].begin() + 1, arrays[alias].begin() + 1 + static_cast<long>(n));
        ASSERT_TRUE(same(got, want)) << count << " pieces of " << n << ", out is " << alias;
        for (std::size_t k = 0; k < count; ++k) {
          if (k == alias) continue;
          const std::vector<T> kept(arrays[k].begin() + 1, arrays[k].begin() + 1 + static_cast<long>(n));
          ASSERT_TRUE(same(kept, given[k]));
        }
      }
    }
}

TEST(SumOfPieces, OrderAndRoundingCanBeSeen) {
  const auto sum = [](std::vector<float> values) {
    std::vector<Tensor> pieces;
    for (float& v : values) pieces.emplace_back(&v, Shape{1}, DType::F32);
    float out = 0;
    sum_pieces(pieces, Tensor(&out, {1}, DType::F32));
    return out;
  };
  EXPECT_EQ(sum({16777216, 1, 1}), 16777216);
  EXPECT_EQ(sum({1, 1, 16777216}), 16777218);
  EXPECT_EQ(sum({1e30f, -1e30f, 1}), 1);
  EXPECT_EQ(sum({1e30f, 1, -1e30f}), 0);
  EXPECT_TRUE(std::isnan(sum({1, std::numeric_limits<float>::quiet_NaN(), 1})));
  EXPECT_TRUE(std::isinf(sum({3e38f, 3e38f, -3e38f})));

  // BF16 has 8 bits: 256 + 1 + 1 is 258 in fp32, but 256 were it rounded after every addition.
  std::vector<Bf16> values = {nearest_bf16(256), nearest_bf16(1), nearest_bf16(1)};
  std::vector<Tensor> pieces;
  for (Bf16& v : values) pieces.emplace_back(&v, Shape{1}, DType::BF16);
  sum_pieces(pieces, pieces[1]);
  EXPECT_EQ(to_float(values[1]), 258);
}

TYPED_TEST(SumPieces, BothInstructionSetsGiveTheSameBits) {
  using T = TypeParam;
  if (cpu_isa() != Isa::Avx512) GTEST_SKIP() << "this CPU has one of the two instruction sets";
  for (const std::size_t n : {1, 17, 1030, 5001}) {
    const auto pieces = random_pieces<T>(4, n);
    std::vector<const T*> data;
    for (const auto& piece : pieces) data.push_back(piece.data());
    std::vector<T> a(n), b(n);
    cpu::avx2::sum_pieces(data.data(), 4, a.data(), static_cast<std::int64_t>(n));
    cpu::avx512::sum_pieces(data.data(), 4, b.data(), static_cast<std::int64_t>(n));
    EXPECT_TRUE(same(a, b)) << n;
  }
}

TEST(SumOfPieces, OthersAreRefused) {
  std::vector<float> memory(12);
  const Tensor six(memory.data(), {6}, DType::F32), five(memory.data(), {5}, DType::F32),
      halves(memory.data(), {6}, DType::BF16), ids(memory.data(), {6}, DType::I32),
      apart = Tensor(memory.data(), {3, 4}, DType::F32).columns(0, 2);
  const auto sum = [](std::vector<Tensor> pieces, const Tensor& out) { sum_pieces(pieces, out); };
  EXPECT_THROW(sum({}, six), std::logic_error);
  EXPECT_THROW(sum({six, five}, six), std::logic_error);
  EXPECT_THROW(sum({six, halves}, six), std::logic_error);
  EXPECT_THROW(sum({ids, ids}, ids), std::logic_error);
  EXPECT_THROW(sum({six, apart}, six), std::logic_error);
  EXPECT_THROW(sum({six, six}, apart), std::logic_error);
}

}  // namespace
}  // namespace compact
