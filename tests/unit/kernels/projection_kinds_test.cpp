#include <array>
#include <numeric>

#include "compact/core/philox.h"
#include "compact/kernels/elementwise.h"
#include "unit/kernels/projection_testing.h"

/// The transforms of hadamard and sparse at the sizes where their kernels change, and their draws.
namespace compact {
namespace {

using namespace testing;

/// The emulated device fills its memory with poison, so there is as much as these tests need: for products
/// of wide inputs also the workspace of cuBLASLt.
std::int64_t capacity(std::int64_t n) { return std::int64_t{!on_cuda() ? 192 : n > 1 << 14 ? 64 : 12} << 20; }

/// The places of S as the kind's definition has them: the first r steps of a Fisher-Yates shuffle.
std::vector<std::int64_t> sample_of(const Projection& p, std::int64_t s) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(s));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t k = 0; k < p.r; ++k) {
    const auto words = philox(
        {static_cast<std::uint32_t>(k / 4), 1, p.window, stream_word(Stream::Projection, p.id)}, p.seed);
    const auto by = static_cast<std::int64_t>(
        words[static_cast<std::size_t>(k % 4)] * static_cast<std::uint64_t>(s - k) >> 32);
    std::swap(order[static_cast<std::size_t>(k)], order[static_cast<std::size_t>(k + by)]);
  }
  order.resize(static_cast<std::size_t>(p.r));
  return order;
}

/// Element (i, j) of a hadamard P by its definition, times sqrt(r).
double hadamard_sign(const Projection& p, std::int64_t i, std::int64_t place) {
  const auto words = philox(
      {static_cast<std::uint32_t>(i / 128), 0, p.window, stream_word(Stream::Projection, p.id)}, p.seed);
  const bool negative = (words[static_cast<std::size_t>(i / 32 % 4)] >> (i % 32) & 1u) != 0;
  return negative != (__builtin_popcountll(static_cast<std::uint64_t>(i & place)) % 2 != 0) ? -1 : 1;
}

TEST(Hadamard, RowsAreThoseOfItsDefinition) {
  // Samples of all places, of few, and of more than fit in shared memory as small keys.
  const std::vector<ProjectionSize> sizes = {{1, 1, 1},      {2, 3, 3},       {3, 128, 128},
                                             {2, 500, 499},  {5, 1000, 1000}, {2, 4096, 1024},
                                             {2, 16384, 70}, {2, 16385, 37},  {2, 20000, 999}};
  for (const auto& [count, n, r] : sizes)
    for (const std::uint32_t window : {0u, 5u}) {
      SCOPED_TRACE(Shape({n, r}).text());
      Bench bench(test_device(), capacity(0));
      const Projection p = projection(bench, "hadamard", n, r, DType::F32, {99, 3, window});
      std::int64_t s = 1;
      while (s < n) s *= 2;
      const std::vector<std::int64_t> sample = sample_of(p, s);
      const Tensor tile = bench.strided({std::min(count, n), r}, 1);
      const std::int64_t begin = n - tile.rows();
      projection_rows(bench.context, p, begin, tile);
      const float entry = static_cast<float>(1 / std::sqrt(static_cast<double>(r)));
      for (std::int64_t i = 0; i < tile.rows(); ++i)
        for (std::int64_t j = 0; j < r; ++j)
          ASSERT_EQ(
              static_cast<double>(tile.f32()[i * tile.ld + j]),
              static_cast<double>(entry) * hadamard_sign(p, begin + i, sample[static_cast<std::size_t>(j)]))
              << i << ", " << j;
      expect_padding_untouched(tile, 1);
    }
}

TEST(Sparse, RowsAreThoseOfItsDefinition) {
  for (const auto& [n, r] : {std::array<std::int64_t, 2>{9, 1}, {9, 3}, {40, 4}, {40, 103}, {3, 30000}}) {
    Bench bench(test_device(), capacity(0));
    const Projection p = projection(bench, "sparse", n, r);
    const std::vector<float> got = whole(bench, p);
    std::vector<float> want(got.size(), 0.0f);
    const std::int64_t count = r < 4 ? 1 : 4;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto words =
          philox({0, static_cast<std::uint32_t>(i), p.window, stream_word(Stream::Projection, p.id)}, p.seed);
      for (std::int64_t k = 0; k < count; ++k) {
        const std::int64_t begin = r * k / count, size = r * (k + 1) / count - begin;
        const std::uint32_t word = words[static_cast<std::size_t>(k)];
        const auto place = begin + static_cast<std::int64_t>(
                                       std::uint64_t{word >> 1} * static_cast<std::uint64_t>(size) >> 31);
        want[static_cast<std::size_t>(i * r + place)] =
            (word & 1u ? -1.0f : 1.0f) / (count == 1 ? 1.0f : 2.0f);
      }
    }
    EXPECT_TRUE(same_bits(got, want)) << n << ", " << r;
  }
}

/// x of `kind` [N, n] projected and expanded, in all types that go together, against plain loops over P.
void check_kind(const std::string& kind, std::int64_t N, std::int64_t n, std::int64_t r) {
  SCOPED_TRACE(kind + " " + Shape({N, n, r}).text());
  for (const DType type : {DType::F32, DType::BF16})
    for (const std::int64_t padding : {0, 1, 8}) {
      if (on_cuda() && n + r > 5000 && padding != 8) continue;  // emulated, it would take too long
      Bench bench(test_device(), capacity(n));
      const Projection p = projection(bench, kind, n, r, type);
      const std::vector<float> P = whole(bench, p);
      const Tensor x = bench.strided({N, n}, padding, type), z = bench.strided({N, r}, padding, type);
      Bench::randomize(x, 1);
      project(bench.context, p, x, z);
      expect_close(z, product(values(x), P, N, n, r), type == DType::F32 ? 2e-6 : 0x1.1p-9);
      if (padding > 0) expect_padding_untouched(z, padding);

      std::vector<double> want = product(values(z), P, N, r, n, true);
      const std::vector<float> before = values(x);
      for (std::size_t i = 0; i < want.size(); ++i) want[i] += 0.5 * static_cast<double>(before[i]);
      expand_add(bench.context, p, z, 0.5f, {false, 1, 2, 3}, x);
      expect_close(x, want, type == DType::F32 ? 2e-6 : 0x1p-8);
      if (padding > 0) expect_padding_untouched(x, padding);
    }
}

TEST(Hadamard, OfEveryLengthAgreesWithPlainLoops) {
  // Every number of stages, full and cut short.
  for (std::int64_t s = 1; s <= 4096; s *= 2) {
    check_kind("hadamard", s < 64 ? 130 : 3, s, std::min<std::int64_t>(s, 45));
    if (s > 2) check_kind("hadamard", 2, s - s / 4, std::min<std::int64_t>(s / 2, 60));
  }
  check_kind("hadamard", 2, 8192, 40);
  check_kind("hadamard", 2, 11008, 37);
  check_kind("hadamard", 1, 16384, 20);
}

TEST(Hadamard, OfMoreThanSharedMemoryHoldsGoesThroughProducts) { check_kind("hadamard", 2, 16390, 24); }

TEST(Sparse, OfAnyWidthAgreesWithPlainLoops) {
  // Columns for granules of 16 bytes, of 8, and for none.
  check_kind("sparse", 17, 130, 57);
  check_kind("sparse", 2, 300, 3);
  for (const std::int64_t r : {6143, 6144, 12287, 12288}) check_kind("sparse", 9, 21, r);
}

TEST(Sparse, OfManyInputsAgreesWithPlainLoops) {
  // The same for inputs.
  for (const std::int64_t n : {6143, 6144, 12288}) check_kind("sparse", 3, n, 30);
}

TEST(Sparse, OfInputsThatAreSortedElsewhereAgreesWithPlainLoops) { check_kind("sparse", 1, 17000, 9); }

TEST(ProjectionKinds, SameBitsInAnyOrderOfThreads) {
  for (const std::string kind : {"hadamard", "sparse"})
    for (const std::int64_t n : {100, 2000, 8200}) {
      SCOPED_TRACE(kind);
      Bench bench(test_device(), capacity(0));
      const Tensor x = bench.random({3, n}, 1, 1, DType::BF16), z = bench.make({3, 90}, DType::BF16),
                   w = bench.make({3, n}, DType::BF16);
      expect_same_bits_for_any_threads([&] {
        const Projection p = projection(bench, kind, n, 90, DType::BF16);
        project(bench.context, p, x, z);
        Bench::randomize(w, 2);
        expand_add(bench.context, p, z, 0.75f, {}, w);
        std::vector<float> out = values(z), more = values(w);
        out.insert(out.end(), more.begin(), more.end());
        return out;
      });
    }
}

TEST(ProjectionKinds, AClosedGateKeepsTheWeight) {
  for (const std::string kind : {"hadamard", "sparse"}) {
    Bench bench;
    const Projection p = projection(bench, kind, 70, 20);
    const Tensor d = bench.random({5, 20}, 1), w = bench.random({5, 70}, 2), gate = bench.make({2});
    const std::vector<float> before = values(w);
    set_values(gate, {1, 0});
    expand_add(bench.context, p, d, 0.5f, {}, w, gate.f32());
    EXPECT_TRUE(same_bits(values(w), before)) << kind;
    set_values(gate, {1, 1});
    expand_add(bench.context, p, d, 0.5f, {}, w, gate.f32());
    EXPECT_FALSE(same_bits(values(w), before)) << kind;
  }
}

TEST(ProjectionKinds, PlanEqualsRunForWideInputs) {
  for (const std::string kind : {"hadamard", "sparse"})
    for (const std::int64_t n : {5000, 17000})
      expect_plan_equals_run([&](Bench& bench) {
        const Projection p = projection(bench, kind, n, 9, DType::BF16);
        const Tensor x = bench.random({2, n}, 1, 1, DType::BF16), z = bench.random({2, 9}, 2, 1, DType::BF16);
        projection_rows(bench.context, p, 3, bench.make({1, 9}, DType::BF16));
        project(bench.context, p, x, z);
        expand_add(bench.context, p, z, 0.5f, {}, x);
      });
}

TEST(ProjectionKinds, NoRowsAreNoWork) {
  for (const std::string& kind : kKinds) {
    if (kind == "gaussian" || kind == "orthonormal") continue;
    Bench bench;
    const Projection p = projection(bench, kind, 70, 20);
    project(bench.context, p, bench.make({0, 70}), bench.make({0, 20}));
    expand_add(bench.context, p, bench.make({0, 20}), 0.5f, {}, bench.make({0, 70}));
    EXPECT_EQ(bench.arena.scratch_mark(), 0u);
  }
}

}  // namespace
}  // namespace compact
