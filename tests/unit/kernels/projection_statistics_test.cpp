#include <algorithm>

#include "unit/kernels/projection_testing.h"

namespace compact {
namespace {

using namespace testing;

/// The mean of |P Pᵀ g - g|² / |g|² over windows, for one fixed g [n].
double noise(const std::string& kind, std::int64_t n, std::int64_t r, int trials, DType type = DType::F32) {
  std::vector<float> g(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    g[static_cast<std::size_t>(i)] = static_cast<float>(std::sin(static_cast<double>(i + 1)));
  double sum = 0;
  for (int trial = 0; trial < trials; ++trial) {
    Bench bench(Device::Cpu, 1 << 20);
    const Drawn drawn{1, 0, static_cast<std::uint32_t>(trial)};
    const std::vector<float> P = whole(bench, projection(bench, kind, n, r, type, drawn));
    const std::vector<double> z = product(g, P, 1, n, r);
    for (std::int64_t i = 0; i < n; ++i) {
      double error = -static_cast<double>(g[static_cast<std::size_t>(i)]);
      for (std::int64_t j = 0; j < r; ++j)
        error += static_cast<double>(P[static_cast<std::size_t>(i * r + j)]) * z[static_cast<std::size_t>(j)];
      sum += error * error;
    }
  }
  return sum / dot(g, g) / trials;
}

TEST(ProjectionStatistics, NumericCaseNoise) {
  COMPACT_NUMERIC_CASE(numeric, "projection_statistics");
  for (const auto& row : numeric["expected"]["noise"]) {
    const double got = noise(row["kind"], row["n"], row["r"], row["trials"]);
    EXPECT_GT(got, row["low"].get<double>()) << row;
    EXPECT_LT(got, row["high"].get<double>()) << row;
  }
}

TEST(ProjectionStatistics, NoiseOfSparse) {
  // (n - 1) / 16 · the sum of 1 / size over the four parts of the columns; (n - 1) / r where 4 divides r, and
  // where r < 4. A trial's standard deviation is about 0.45 (n = 64, r = 16, simulated apart); six of a mean.
  struct Row {
    std::int64_t n, r;
    double expected;
  };
  for (const auto& [n, r, expected] : {Row{64, 16, 63.0 / 16}, Row{64, 32, 63.0 / 32}, Row{48, 3, 47.0 / 3},
                                       Row{48, 7, 47.0 / 16 * (1 + 0.5 + 0.5 + 0.5)}}) {
    const int trials = 400;
    const double got = noise("sparse", n, r, trials);
    EXPECT_NEAR(got, expected, 6 * 0.5 * expected / std::sqrt(trials)) << n << ", " << r;
  }
}

TEST(ProjectionStatistics, NoiseInBf16IsThatOfFp32) {
  for (const std::string& kind : kKinds) {
    const double exact = noise(kind, 64, 16, 50), rounded = noise(kind, 64, 16, 50, DType::BF16);
    EXPECT_NEAR(rounded, exact, 0.02 * exact) << kind;
  }
}

TEST(ProjectionStatistics, NumericCaseIdentity) {
  COMPACT_NUMERIC_CASE(numeric, "projection_statistics");
  const auto& expected = numeric["expected"];
  const std::int64_t n = expected["identity"]["n"], r = expected["identity"]["r"];
  const int windows = expected["identity"]["windows"];
  for (const std::string& kind : kKinds) {
    SCOPED_TRACE(kind);
    std::vector<double> mean(static_cast<std::size_t>(n * n), 0.0);
    std::vector<float> before;
    for (int window = 0; window < windows; ++window) {
      Bench bench(Device::Cpu, 1 << 20);
      const auto make = [&](std::uint64_t seed, std::uint32_t id) {
        return whole(
            bench, projection(bench, kind, n, r, DType::F32, {seed, id, static_cast<std::uint32_t>(window)}));
      };
      const std::vector<float> p = make(5, 1);
      const std::vector<double> square = product(p, p, n, r, n, true);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += square[i] / windows;
      // Other windows, weights and seeds: n·r products of variance 1/r² each.
      std::vector<std::vector<float>> others = {make(6, 1), make(5, 2)};
      if (!before.empty()) others.push_back(before);
      for (const auto& other : others)
        EXPECT_LT(std::abs(dot(p, other)) / static_cast<double>(n),
                  expected["entries"]["abs_correlation_of_two_windows_below"].get<double>());
      before = p;
    }
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = 0; k < n; ++k) {
        const double got = mean[static_cast<std::size_t>(i * n + k)];
        if (i == k)
          EXPECT_LT(std::abs(got - 1), expected["identity"]["diagonal_abs_error_below"].get<double>());
        else
          EXPECT_LT(std::abs(got), expected["identity"]["off_diagonal_abs_below"].get<double>());
      }
  }
}

TEST(ProjectionStatistics, NumericCaseEntriesOfGaussian) {
  COMPACT_NUMERIC_CASE(numeric, "projection_statistics");
  const auto& entries = numeric["expected"]["entries"];
  const std::int64_t n = numeric["inputs"]["entries"]["n"], r = numeric["inputs"]["entries"]["r"];
  const int windows = numeric["inputs"]["entries"]["windows"];
  double sum = 0, square = 0, fourth = 0;
  for (int window = 0; window < windows; ++window) {
    Bench bench(Device::Cpu, 1 << 20);
    const Drawn drawn{5, 1, static_cast<std::uint32_t>(window)};
    for (const float x : whole(bench, projection(bench, "gaussian", n, r, DType::F32, drawn))) {
      const double d = static_cast<double>(x);
      sum += d, square += d * d, fourth += d * d * d * d;
    }
  }
  const double count = static_cast<double>(windows * n * r), variance = square / count;
  EXPECT_LT(std::abs(sum / count), entries["abs_mean_below"].get<double>());
  EXPECT_GT(variance, entries["variance_low"].get<double>());
  EXPECT_LT(variance, entries["variance_high"].get<double>());
  EXPECT_GT(fourth / count / variance / variance, entries["kurtosis_low"].get<double>());
  EXPECT_LT(fourth / count / variance / variance, entries["kurtosis_high"].get<double>());
}

TEST(ProjectionStatistics, EveryRowOfTheHadamardIsSampledAlike) {
  // Row k of the transform is in the sample of r from s with probability r / s: counted by the sign pattern
  // of column j relative to input 0, whose bits give the row.
  const std::int64_t n = 16, r = 5;
  const int windows = 4000;
  std::vector<int> seen(16, 0);
  for (int window = 0; window < windows; ++window) {
    Bench bench(Device::Cpu, 1 << 16);
    const Drawn drawn{9, 1, static_cast<std::uint32_t>(window)};
    const std::vector<float> P = whole(bench, projection(bench, "hadamard", n, r, DType::F32, drawn));
    std::vector<int> columns;
    for (std::int64_t j = 0; j < r; ++j) {
      // Columns 0 and j share the signs D: their product has the pattern of row S_0 xor S_j.
      int row = 0;
      for (int bit = 0; bit < 4; ++bit) {
        const auto product_at = [&](std::int64_t i) {
          return P[static_cast<std::size_t>(i * r)] * P[static_cast<std::size_t>(i * r + j)];
        };
        if (product_at(0) * product_at(std::int64_t{1} << bit) < 0) row |= 1 << bit;
      }
      columns.push_back(row);
      if (j > 0) ++seen[static_cast<std::size_t>(row)];
    }
    std::sort(columns.begin(), columns.end());
    EXPECT_EQ(std::unique(columns.begin(), columns.end()), columns.end()) << "a row was drawn twice";
  }
  EXPECT_EQ(seen[0], 0);
  const double share = (r - 1) / 15.0, deviation = std::sqrt(windows * share * (1 - share));
  for (std::size_t row = 1; row < 16; ++row) EXPECT_NEAR(seen[row], windows * share, 6 * deviation);
}

}  // namespace
}  // namespace compact
