#include "compact/kernels/projection.h"

#include <algorithm>

#include "compact/core/error.h"
#include "compact/core/philox.h"
#include "compact/kernels/gemm.h"
#include "kernels/normal_cpu.h"
#include "kernels/normal_math.h"
#include "unit/kernels/op_testing.h"

namespace compact {
namespace {

using testing::Bench;
using testing::same_bits;
using testing::values;

Projection gaussian(std::int64_t n, std::int64_t r, std::uint64_t seed = 42, std::uint32_t id = 7,
                    std::uint32_t window = 3) {
  return {ProjectionKind::Gaussian, seed, id, window, n, r};
}

std::vector<float> whole(Bench& bench, const Projection& p) {
  const Tensor tile = bench.make({p.n, p.r});
  projection_rows(bench.context, p, 0, tile);
  return values(tile);
}

TEST(ProjectionRows, ArePinned) {
  // The meaning of a seed: a change here changes every run and breaks every resume.
  Bench bench;
  const std::vector<float> p = whole(bench, gaussian(3, 5));
  const std::vector<float> want = {0x1.f9e77ap-5f,  -0x1.be8c34p-6f, 0x1.11dd5ep-2f, -0x1.304676p-1f,
                                   -0x1.9b502ap-4f, 0x1.32c778p-5f,  0x1.33e08cp-2f, -0x1.375312p-2f,
                                   0x1.735d2cp-3f,  0x1.b5ad44p-8f,  0x1.06e44ap-2f, 0x1.d3c674p-4f,
                                   0x1.e40dacp-4f,  -0x1.f7c8e2p-3f, -0x1.d01ca6p-2f};
  EXPECT_TRUE(same_bits(p, want));
}

TEST(ProjectionRows, AreScaledDeviatesOfTheirCounters) {
  Bench bench;
  const Projection p = gaussian(6, 10, 99, 0xABCDEF, 1u << 31);
  const std::vector<float> got = whole(bench, p);
  for (std::uint32_t i = 0; i < 6; ++i)
    for (std::uint32_t j = 0; j < 10; ++j) {
      const auto w = philox({j / 4, i, p.window, stream_word(Stream::Projection, p.id)}, p.seed);
      float a = 0, b = 0;
      normal_pair(w[j % 4 < 2 ? 0 : 2], w[j % 4 < 2 ? 1 : 3], a, b);
      ASSERT_EQ(got[i * 10 + j], static_cast<float>(1 / std::sqrt(10.0)) * (j % 2 == 0 ? a : b));
    }
}

TEST(ProjectionRows, OfAPartAreRowsOfTheWhole) {
  Bench bench;
  const Projection p = gaussian(20, 13);
  const std::vector<float> all = whole(bench, p);
  const Tensor tile = bench.strided({7, 13}, 2);
  projection_rows(bench.context, p, 11, tile);
  EXPECT_TRUE(same_bits(values(tile), {all.begin() + 11 * 13, all.begin() + 18 * 13}));
}

TEST(ProjectionRows, SameBitsOnEveryInstructionSetAndForAnyThreads) {
  Bench bench;
  const Projection p = gaussian(50, 131);
  const Tensor tile = bench.make({50, 131});
  testing::expect_same_bits_for_any_threads([&] {
    projection_rows(bench.context, p, 0, tile);
    return values(tile);
  });
  if (cpu_isa() != Isa::Avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  const Tensor other = bench.make({50, 131});
  cpu::avx2::normal_rows(other.f32(), 131, 0, 50, 131, static_cast<float>(1 / std::sqrt(131.0)), p.seed,
                         p.window, stream_word(Stream::Projection, p.id));
  EXPECT_TRUE(same_bits(values(tile), values(other)));
}

TEST(ProjectionStatistics, NumericCaseNoise) {
  COMPACT_NUMERIC_CASE(numeric, "projection_statistics");
  for (const auto& row : numeric["expected"]["noise"]) {
    if (row["kind"] != "gaussian") continue;
    const std::int64_t n = row["n"], r = row["r"];
    const int trials = row["trials"];
    std::vector<double> g(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      g[static_cast<std::size_t>(i)] = std::sin(static_cast<double>(i + 1));
    double size = 0, noise = 0;
    for (const double x : g) size += x * x;
    Bench bench;
    const Tensor tile = bench.make({n, r});
    for (int trial = 0; trial < trials; ++trial) {
      projection_rows(bench.context, gaussian(n, r, 1, 0, static_cast<std::uint32_t>(trial)), 0, tile);
      std::vector<double> z(static_cast<std::size_t>(r), 0.0);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < r; ++j)
          z[static_cast<std::size_t>(j)] +=
              static_cast<double>(tile.f32()[i * r + j]) * g[static_cast<std::size_t>(i)];
      for (std::int64_t i = 0; i < n; ++i) {
        double back = 0;
        for (std::int64_t j = 0; j < r; ++j)
          back += static_cast<double>(tile.f32()[i * r + j]) * z[static_cast<std::size_t>(j)];
        const double error = back - g[static_cast<std::size_t>(i)];
        noise += error * error / size;
      }
    }
    EXPECT_GT(noise / trials, row["low"].get<double>()) << "r " << r;
    EXPECT_LT(noise / trials, row["high"].get<double>()) << "r " << r;
  }
}

TEST(ProjectionStatistics, NumericCaseIdentityAndEntries) {
  COMPACT_NUMERIC_CASE(numeric, "projection_statistics");
  const auto& expected = numeric["expected"];
  const std::int64_t n = expected["identity"]["n"], r = expected["identity"]["r"];
  const int windows = expected["identity"]["windows"];
  Bench bench;
  std::vector<double> mean(static_cast<std::size_t>(n * n), 0.0);
  double sum = 0, square = 0, fourth = 0;
  std::vector<float> before;
  for (int window = 0; window < windows; ++window) {
    const std::vector<float> p = whole(bench, gaussian(n, r, 5, 1, static_cast<std::uint32_t>(window)));
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = 0; k < n; ++k)
        for (std::int64_t j = 0; j < r; ++j)
          mean[static_cast<std::size_t>(i * n + k)] +=
              static_cast<double>(p[static_cast<std::size_t>(i * r + j)]) *
              static_cast<double>(p[static_cast<std::size_t>(k * r + j)]) / windows;
    for (const float x : p) {
      const double d = static_cast<double>(x);
      sum += d, square += d * d, fourth += d * d * d * d;
    }
    // Other windows, weights and seeds: n·r products of variance 1/r² each.
    std::vector<std::vector<float>> others = {
        whole(bench, gaussian(n, r, 6, 1, static_cast<std::uint32_t>(window))),
        whole(bench, gaussian(n, r, 5, 2, static_cast<std::uint32_t>(window)))};
    if (!before.empty()) others.push_back(before);
    for (const auto& other : others)
      EXPECT_LT(std::abs(testing::dot(p, other)) / static_cast<double>(n),
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
  const double count = static_cast<double>(windows * n * r), variance = square / count;
  EXPECT_LT(std::abs(sum / count), expected["entries"]["abs_mean_below"].get<double>());
  EXPECT_GT(variance, expected["entries"]["variance_low"].get<double>());
  EXPECT_LT(variance, expected["entries"]["variance_high"].get<double>());
  EXPECT_GT(fourth / count / variance / variance, expected["entries"]["kurtosis_low"].get<double>());
  EXPECT_LT(fourth / count / variance / variance, expected["entries"]["kurtosis_high"].get<double>());
}

struct Size {
  std::int64_t N, n, r;
};
/// Ones, r no multiple of 4, r = n, and two that need several slices, the last of them cut.
const std::vector<Size> kSizes = {{1, 1, 1},   {3, 1, 5},   {4, 7, 1},      {5, 9, 9},
                                  {17, 33, 6}, {8, 64, 16}, {3, 700, 1031}, {2, 3, 300000}};

TEST(Project, AgreesWithPlainLoops) {
  for (const auto& [N, n, r] : kSizes) {
    Bench bench;
    const Projection p = gaussian(n, r);
    const Tensor x = bench.strided({N, n}, 3), z = bench.make({N, r});
    Bench::randomize(x, 1);
    project(bench.context, p, x, z);
    const std::vector<float> matrix = whole(bench, p);
    std::vector<double> want(static_cast<std::size_t>(N * r), 0.0);
    for (std::int64_t i = 0; i < N; ++i)
      for (std::int64_t k = 0; k < n; ++k)
        for (std::int64_t j = 0; j < r; ++j)
          want[static_cast<std::size_t>(i * r + j)] +=
              static_cast<double>(x.f32()[i * x.ld + k]) *
              static_cast<double>(matrix[static_cast<std::size_t>(k * r + j)]);
    testing::expect_close(z, want, 2e-6);
    EXPECT_EQ(bench.context.flops.gemm, 2 * N * n * r);
    EXPECT_EQ(bench.arena.scratch_mark(), 0u);
  }
}

TEST(ExpandAdd, AgreesWithPlainLoops) {
  for (const auto& [m, n, r] : kSizes) {
    Bench bench;
    const Projection p = gaussian(n, r);
    const Tensor d = bench.random({m, r}, 1), w = bench.strided({m, n}, 2);
    Bench::randomize(w, 2);
    const std::vector<float> matrix = whole(bench, p), start = values(w);
    expand_add(bench.context, p, d, w);
    std::vector<double> want(start.begin(), start.end());
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t k = 0; k < n; ++k)
        for (std::int64_t j = 0; j < r; ++j)
          want[static_cast<std::size_t>(i * n + k)] +=
              static_cast<double>(d.f32()[i * r + j]) *
              static_cast<double>(matrix[static_cast<std::size_t>(k * r + j)]);
    testing::expect_close(w, want, 2e-6);
    EXPECT_EQ(bench.context.flops.gemm, 2 * m * n * r);
    EXPECT_EQ(bench.arena.scratch_mark(), 0u);
  }
}

TEST(Project, SameBitsForAnyThreads) {
  Bench bench;
  const Projection p = gaussian(700, 515);
  const Tensor x = bench.random({21, 700}, 1), z = bench.make({21, 515}), w = bench.make({21, 700});
  testing::expect_same_bits_for_any_threads([&] {
    project(bench.context, p, x, z);
    Bench::randomize(w, 2);
    expand_add(bench.context, p, z, w);
    std::vector<float> out = values(z), more = values(w);
    out.insert(out.end(), more.begin(), more.end());
    return out;
  });
}

TEST(Project, NumericCaseSharing) {
  COMPACT_NUMERIC_CASE(numeric, "compact_sharing");
  // z of the case comes from its own P; here: the gradient of a group is one product zᵀ [dO_1 | dO_2 | ...],
  // and its column blocks are the separate gradients.
  const double tolerance = numeric["tolerance"]["fp32"];
  const auto& expected = numeric["expected"]["per_input"];
  const std::int64_t N = 6, n = 8, r = 2;
  Bench bench;
  const Tensor x = bench.of({N, n}, testing::numbers(numeric["inputs"]["x"]));
  const Tensor P = bench.of({n, r}, testing::numbers(numeric["inputs"]["P_shared"])), z = bench.make({N, r});
  gemm(bench.context, x, Transpose::No, P, Transpose::No, z, false);
  testing::expect_close(z, testing::numbers(expected["z"]), tolerance);
  const Tensor all = bench.make({N, 16}), group = bench.make({r, 16});
  std::int64_t at = 0;
  for (const auto& dO : numeric["inputs"]["dO"]) {
    const std::vector<double> data = testing::numbers(dO);
    const std::int64_t m = dO["shape"][1];
    const Tensor part = bench.of({N, m}, data), alone = bench.make({r, m});
    testing::set_values(all.columns(at, m), values(part));
    gemm(bench.context, z, Transpose::Yes, part, Transpose::No, alone, false);
    gemm(bench.context, z, Transpose::Yes, all.columns(at, m), Transpose::No, group.columns(at, m), false);
    EXPECT_TRUE(same_bits(values(alone), values(group.columns(at, m))));
    at += m;
  }
  gemm(bench.context, z, Transpose::Yes, all, Transpose::No, group, false);
  testing::expect_close(group, testing::numbers(expected["G_hat"]), tolerance);
  EXPECT_EQ(z.elements(), expected["kept_elements"].get<std::int64_t>());
}

TEST(Project, PlannedScratchIsTheMeasured) {
  for (const auto& [N, n, r] : kSizes) {
    const Projection p = gaussian(n, r);
    const auto peak = [&](Device device) {
      Bench bench(device);
      const Tensor x = bench.random({N, n}, 1), z = bench.random({N, r}, 2);
      project(bench.context, p, x, z);
      expand_add(bench.context, p, z, x);
      return bench.arena.ledger().peak();
    };
    EXPECT_EQ(peak(Device::Plan), peak(Device::Cpu)) << N << ", " << n << ", " << r;
  }
}

TEST(Project, SlicesStayWithinAMebibyte) {
  Bench plan(Device::Plan);
  const Projection p = gaussian(11008, 2752);
  project(plan.context, p, plan.make({64, p.n}), plan.make({64, p.r}));
  for (const Allocation& a : plan.arena.ledger().live_at_peak())
    if (a.name == "projection slice") {
      EXPECT_EQ(a.shape, (Shape{80, 2752}));
      EXPECT_LE(a.bytes, 1 << 20);
      return;
    }
  FAIL() << "no slice was taken";
}

TEST(Project, PlansAndRefuses) {
  const Projection p = gaussian(8, 4);
  Bench plan(Device::Plan);
  project(plan.context, p, plan.make({3, 8}, DType::BF16), plan.make({3, 4}, DType::BF16));
  expand_add(plan.context, p, plan.make({3, 4}), plan.make({3, 8}, DType::BF16));
  Bench bench;
  const Tensor x = bench.random({3, 8}, 1), z = bench.make({3, 4});
  EXPECT_THROW(project(bench.context, p, z, z), std::logic_error);
  EXPECT_THROW(project(bench.context, p, x, bench.make({2, 4})), std::logic_error);
  EXPECT_THROW(expand_add(bench.context, p, x, x), std::logic_error);
  EXPECT_THROW(expand_add(bench.context, p, z, z), std::logic_error);
  EXPECT_THROW(projection_rows(bench.context, p, 6, z), std::logic_error);
  EXPECT_THROW(project(bench.context, gaussian(8, 4, 1, 1u << 24), x, z), std::logic_error);
  EXPECT_THROW(project(bench.context, p, bench.make({3, 8}, DType::BF16), z), RunError);
}

}  // namespace
}  // namespace compact
