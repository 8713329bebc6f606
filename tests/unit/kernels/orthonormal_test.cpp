#include "unit/kernels/projection_testing.h"

namespace compact {
namespace {

using namespace testing;

const std::vector<std::pair<std::int64_t, std::int64_t>> kSizes = {
    {1, 1}, {2, 1}, {2, 2}, {7, 3}, {16, 16}, {33, 32}, {40, 33}, {64, 16}, {129, 70}, {352, 88}};

/// Qᵀ · b for columns Q, b [n, r], scaled: [r, r].
std::vector<double> gram(const std::vector<float>& q, const std::vector<float>& b, std::int64_t n,
                         std::int64_t r, double scale) {
  std::vector<double> out(static_cast<std::size_t>(r * r), 0.0);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < r; ++j)
      for (std::int64_t k = 0; k < r; ++k)
        out[static_cast<std::size_t>(j * r + k)] +=
            scale * static_cast<double>(q[static_cast<std::size_t>(i * r + j)]) *
            static_cast<double>(b[static_cast<std::size_t>(i * r + k)]);
  return out;
}

TEST(Orthonormal, ColumnsAre) {
  for (const auto& [n, r] : kSizes) {
    Bench bench;
    const std::vector<float> P = whole(bench, projection(bench, "orthonormal", n, r));
    const std::vector<double> got = gram(P, P, n, r, static_cast<double>(r) / static_cast<double>(n));
    for (std::int64_t j = 0; j < r; ++j)
      for (std::int64_t k = 0; k < r; ++k)
        ASSERT_NEAR(got[static_cast<std::size_t>(j * r + k)], j == k ? 1.0 : 0.0, 1e-6) << n << ", " << r;
  }
}

TEST(Orthonormal, IsTheQOfTheGaussianWithAPositiveDiagonal) {
  for (const auto& [n, r] : kSizes) {
    Bench bench;
    const std::vector<float> P = whole(bench, projection(bench, "orthonormal", n, r)),
                             gaussian = whole(bench, projection(bench, "gaussian", n, r));
    const double root = std::sqrt(static_cast<double>(n) / static_cast<double>(r));
    const std::vector<double> R = gram(P, gaussian, n, r, 1 / root);  // Qᵀ G
    for (std::int64_t j = 0; j < r; ++j)
      for (std::int64_t k = 0; k <= j; ++k) {
        const double x = R[static_cast<std::size_t>(j * r + k)];
        if (k < j)
          ASSERT_NEAR(x, 0.0, 2e-6 * root) << n << ", " << r << ": below the diagonal";
        else
          ASSERT_GT(x, 0.0) << n << ", " << r << ": on the diagonal";
      }
    // Q R = G: nothing of G is lost.
    std::vector<float> upper(R.begin(), R.end());
    const std::vector<double> again = product(P, upper, n, r, r);
    for (std::size_t i = 0; i < again.size(); ++i)
      ASSERT_NEAR(again[i] / root, static_cast<double>(gaussian[i]), 1e-5) << n << ", " << r;
  }
}

TEST(Orthonormal, InBf16IsTheRoundedOne) {
  Bench bench;
  const std::vector<float> exact = whole(bench, projection(bench, "orthonormal", 70, 33));
  const std::vector<float> rounded = whole(bench, projection(bench, "orthonormal", 70, 33, DType::BF16));
  for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_EQ(rounded[i], to_float(nearest_bf16(exact[i]))) << i;
}

TEST(Orthonormal, TakesAStridedMatrix) {
  Bench bench;
  Projection p = projection(bench, "orthonormal", 40, 9);
  const std::vector<float> want = whole(bench, p);
  p.matrix = bench.strided({40, 9}, 3);
  prepare_projection(bench.context, p);
  EXPECT_TRUE(same_bits(whole(bench, p), want));
  expect_padding_untouched(p.matrix, 3);
}

}  // namespace
}  // namespace compact
