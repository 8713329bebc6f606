#include "compact/core/philox.h"
#include "compact/kernels/elementwise.h"
#include "unit/kernels/projection_testing.h"

namespace compact {
namespace {

using namespace testing;

/// Room for small tensors: the emulated device fills all of it with poison.
struct Bench : testing::Bench {
  Bench() : testing::Bench(test_device(), std::int64_t{48} << 20) {}
};

/// kept · w + d Pᵀ in double.
std::vector<double> expanded(const std::vector<float>& w, float kept, const Tensor& d,
                             const std::vector<float>& P, std::int64_t n) {
  std::vector<double> want = product(values(d), P, d.rows(), d.cols(), n, true);
  for (std::size_t i = 0; i < want.size(); ++i)
    want[i] += static_cast<double>(kept) * static_cast<double>(w[i]);
  return want;
}

TEST(ExpandAdd, AgreesWithPlainLoops) {
  for (const std::string& kind : kKinds)
    for (const DType type : {DType::F32, DType::BF16})
      for (const auto& [m, n, r] : kProjectionSizes) {
        if (at_most_n(kind) && r > n) continue;
        SCOPED_TRACE(kind + " " + Shape({m, n, r}).text());
        for (const float kept : {1.0f, 0.75f}) {
          Bench bench;
          // A P of BF16 beside fp32 weights: master weights.
          const Projection p = projection(bench, kind, n, r, type);
          const Tensor d = bench.strided({m, r}, 1), w = bench.strided({m, n}, 2);
          Bench::randomize(d, 1);
          Bench::randomize(w, 2);
          const std::vector<double> want = expanded(values(w), kept, d, whole(bench, p), n);
          expand_add(bench.context, p, d, kept, {}, w);
          // Kernels of a CUDA device add up in one run what the CPU's library adds up in parts.
          expect_close(w, want, on_cuda() ? 2e-6 + 3e-8 * std::sqrt(static_cast<double>(r)) : 2e-6);
          expect_padding_untouched(w, 2);
          EXPECT_EQ(bench.arena.scratch_mark(), 0u);
        }
      }
}

TEST(ExpandAdd, AgreesWithPlainLoopsInBf16) {
  for (const std::string& kind : kKinds)
    for (const DType d_type : {DType::F32, DType::BF16})
      for (const bool stochastic : {false, true})
        for (const auto& [m, n, r] : kProjectionSizes) {
          if (at_most_n(kind) && r > n) continue;
          SCOPED_TRACE(kind + " " + Shape({m, n, r}).text());
          Bench bench;
          const Projection p = projection(bench, kind, n, r, DType::BF16);
          const Tensor d = bench.random({m, r}, 1, 1, d_type), w = bench.strided({m, n}, 2, DType::BF16);
          Bench::randomize(w, 2);
          const std::vector<double> want = expanded(values(w), 0.75f, d, whole(bench, p), n);
          expand_add(bench.context, p, d, 0.75f, {stochastic, 1, 2, 3}, w);
          // Nearest moves by half a unit in the last place, stochastic by a whole one; d is rounded too.
          expect_close(w, want, (stochastic ? 0x1p-7 : 0x1p-8) + (d_type == DType::F32 ? 0x1p-8 : 0));
          expect_padding_untouched(w, 2);
        }
}

TEST(ExpandAdd, RoundsEachElementByItsOwnWord) {
  // With d = 0 what is rounded is known: kept · w.
  const Rounding rounding{true, 0x123456789abcdefu, 77, 1000};
  for (const std::string& kind : kKinds)
    for (const auto& [m, n, r] : {ProjectionSize{37, 70, 33}, ProjectionSize{700, 1030, 600}}) {
      Bench bench;
      const Projection p = projection(bench, kind, n, r, DType::BF16);
      const Tensor d = bench.make({m, r}), w = bench.random({m, n}, 3, 1, DType::BF16);
      zero(bench.context, d);
      const std::vector<float> start = values(w);
      expand_add(bench.context, p, d, 0.3f, rounding, w);
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          const auto words = philox({static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(i),
                                     rounding.step, stream_word(Stream::Rounding, rounding.id)},
                                    rounding.seed);
          const float exact = 0.3f * start[static_cast<std::size_t>(i * n + j)];
          ASSERT_EQ(w.as<Bf16>()[i * n + j].bits,
                    stochastic_bf16(exact, words[static_cast<std::size_t>(j % 4)]).bits)
              << kind << " " << i << ", " << j;
        }
    }
}

TEST(ExpandAdd, StochasticRoundingKeepsSmallChanges) {
  // Changes far below half a unit in the last place add up; to nearest they are lost.
  for (const std::string& kind : kKinds) {
    Bench bench;
    const std::int64_t m = 64, n = 96, r = 24;
    const Projection p = projection(bench, kind, n, r, DType::BF16);
    const Tensor d = bench.random({m, r}, 1, 1e-4f, DType::BF16), w = bench.make({m, n}, DType::BF16),
                 nearest = bench.make({m, n}, DType::BF16);
    const std::vector<double> change = product(values(d), whole(bench, p), m, r, n, true);
    fill(bench.context, w, 1.5f);
    fill(bench.context, nearest, 1.5f);
    const std::uint32_t steps = 200;
    for (std::uint32_t step = 0; step < steps; ++step) {
      expand_add(bench.context, p, d, 1.0f, {true, 1, 2, step}, w);
      expand_add(bench.context, p, d, 1.0f, {false, 1, 2, step}, nearest);
    }
    double along = 0, size = 0;
    const std::vector<float> got = values(w);
    for (std::size_t i = 0; i < got.size(); ++i) {
      along += (static_cast<double>(got[i]) - 1.5) * change[i];
      size += change[i] * change[i] * steps;
    }
    EXPECT_NEAR(along / size, 1.0, 0.1) << kind;
    EXPECT_EQ(values(nearest), std::vector<float>(static_cast<std::size_t>(m * n), 1.5f)) << kind;
  }
}

TEST(ExpandAdd, NeedsNoTemporaryOfTheSizeOfTheWeight) {
  for (const std::string kind : {"gaussian", "hadamard", "sparse"})
    for (const DType type : {DType::F32, DType::BF16}) {
      testing::Bench plan(Device::Plan);
      const Projection p = projection(plan, kind, 4096, 1024, type);
      const Tensor d = plan.make({11008, 1024}, type), w = plan.make({11008, 4096}, type);
      const auto before = plan.arena.ledger().peak();
      expand_add(plan.context, p, d, 0.5f, {}, w);
      EXPECT_LE(plan.arena.ledger().peak() - before, (on_cuda() ? 17 : 12) << 20) << kind;
    }
}

TEST(ExpandAdd, AClosedGateLeavesTheWeightAndAnOpenOneDoesNotMatter) {
  for (const std::string& kind : kKinds)
    for (const DType type : {DType::F32, DType::BF16}) {
      SCOPED_TRACE(kind);
      Bench bench;
      const std::int64_t m = 9, n = 70, r = 33;
      const Projection p = projection(bench, kind, n, r, type);
      const Tensor d = bench.random({m, r}, 1, 1, type), w = bench.random({m, n}, 2, 1, type),
                   other = bench.as(w, type), gate = bench.of({3}, std::vector<float>{0.5f, 0, 1});
      const std::vector<float> start = values(w);
      const Rounding rounding{true, 42, 9, 1000};
      expand_add(bench.context, p, d, 0.5f, rounding, w, gate.f32());
      EXPECT_TRUE(same_bits(values(w), start));
      gate.f32()[1] = 1;  // the factor is for gradients
      expand_add(bench.context, p, d, 0.5f, rounding, w, gate.f32());
      expand_add(bench.context, p, d, 0.5f, rounding, other);
      EXPECT_FALSE(same_bits(values(w), start));
      EXPECT_TRUE(same_bits(values(w), values(other)));
    }
}

TEST(ExpandAdd, SlicesOfAWeightAreRoundedAsOne) {
  // More than 1 MiB of P, on a CUDA device more than 16: the last slice's columns count on.
  const Rounding rounding{true, 42, 9, 1000};
  Bench bench;
  const std::int64_t m = 2, n = on_cuda() ? 8500 : 700, r = 1024;
  const Projection p = projection(bench, "gaussian", n, r, DType::BF16);
  const Tensor d = bench.make({m, r}), w = bench.random({m, n}, 3, 1, DType::BF16);
  zero(bench.context, d);
  const std::vector<float> start = values(w);
  expand_add(bench.context, p, d, 0.3f, rounding, w);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      const auto words = philox({static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(i),
                                 rounding.step, stream_word(Stream::Rounding, rounding.id)},
                                rounding.seed);
      const float exact = 0.3f * start[static_cast<std::size_t>(i * n + j)];
      ASSERT_EQ(w.as<Bf16>()[i * n + j].bits,
                stochastic_bf16(exact, words[static_cast<std::size_t>(j % 4)]).bits)
          << i << ", " << j;
    }
}

}  // namespace
}  // namespace compact
