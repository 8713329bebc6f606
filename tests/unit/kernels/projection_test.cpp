#include "compact/kernels/projection.h"

#include <algorithm>

#include "compact/core/error.h"
#include "compact/core/philox.h"
#include "compact/kernels/elementwise.h"
#include "compact/kernels/gemm.h"
#include "kernels/normal_cpu.h"
#include "kernels/normal_math.h"
#include "kernels/projection_cuda.h"
#include "unit/kernels/projection_testing.h"

namespace compact {
namespace {

using namespace testing;

Projection gaussian(std::int64_t n, std::int64_t r, std::uint64_t seed = 42, std::uint32_t id = 7,
                    std::uint32_t window = 3) {
  return {ProjectionKind::Gaussian, seed, id, window, n, r};
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
  expect_same_bits_for_any_threads([&] {
    projection_rows(bench.context, p, 0, tile);
    return values(tile);
  });
  if (cpu_isa() != Isa::Avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  const Tensor other = bench.make({50, 131});
  cpu::avx2::normal_rows(other.f32(), 131, 0, 50, 131, static_cast<float>(1 / std::sqrt(131.0)), p.seed,
                         p.window, stream_word(Stream::Projection, p.id));
  EXPECT_TRUE(same_bits(values(tile), values(other)));
}

/// got = a · b in double, within `tolerance`.
void check_product(const Tensor& a, const std::vector<float>& b, const Tensor& got, double tolerance) {
  expect_close(got, product(values(a), b, a.rows(), a.cols(), got.cols()), tolerance);
}

TEST(Project, AgreesWithPlainLoops) {
  for (const std::string& kind : kKinds)
    for (const auto& [N, n, r] : kProjectionSizes) {
      if (at_most_n(kind) && r > n) continue;
      SCOPED_TRACE(kind + " " + Shape({N, n, r}).text());
      Bench bench;
      const Projection p = projection(bench, kind, n, r);
      const Tensor x = bench.strided({N, n}, 3), z = bench.strided({N, r}, 2);
      Bench::randomize(x, 1);
      project(bench.context, p, x, z);
      check_product(x, whole(bench, p), z, 2e-6);
      expect_padding_untouched(z, 2);
      EXPECT_EQ(bench.arena.scratch_mark(), 0u);
    }
}

TEST(Project, AgreesWithPlainLoopsInBf16) {
  for (const std::string& kind : kKinds)
    for (const auto& [N, n, r] : kProjectionSizes) {
      if (at_most_n(kind) && r > n) continue;
      SCOPED_TRACE(kind + " " + Shape({N, n, r}).text());
      Bench bench;
      const Projection p = projection(bench, kind, n, r, DType::BF16);
      const Tensor x = bench.strided({N, n}, 3, DType::BF16), z = bench.strided({N, r}, 2, DType::BF16),
                   wide = bench.make({N, r});
      Bench::randomize(x, 1);
      const std::vector<float> matrix = whole(bench, p);
      EXPECT_TRUE(same_bits(matrix, whole(bench, p, DType::BF16)));
      project(bench.context, p, x, z);
      // One rounding of z, whatever the number of slices: half a unit in the last place.
      check_product(x, matrix, z, 0x1.1p-9);
      expect_padding_untouched(z, 2);
      project(bench.context, p, x, wide);
      check_product(x, matrix, wide, 5e-6);
      // An fp32 x sees the same rounded P.
      const Tensor exact = bench.random({N, n}, 2);
      project(bench.context, p, exact, wide);
      check_product(exact, matrix, wide, 2e-6);
    }
}

TEST(Project, SumsManyTokensOfBf16InParts) {
  // Several slices, and more tokens than are summed at once.
  Bench bench;
  const Projection p = projection(bench, "gaussian", 600, 1024, DType::BF16);
  const Tensor x = bench.random({4100, 600}, 1, 1, DType::BF16), z = bench.make({4100, 1024}, DType::BF16);
  project(bench.context, p, x, z);
  const std::vector<float> matrix = whole(bench, p);
  for (const std::int64_t row : {0, 4095, 4096, 4099})
    check_product(x.row_range(row, 1), matrix, z.row_range(row, 1), 0x1.1p-9);
}

TEST(Project, OfTheIdentityIsP) {
  for (const std::string& kind : kKinds)
    for (const DType type : {DType::F32, DType::BF16}) {
      SCOPED_TRACE(kind);
      Bench bench;
      const Projection p = projection(bench, kind, 70, 33, type);
      const std::vector<float> matrix = whole(bench, p);
      for (const DType x_type : {DType::F32, DType::BF16}) {
        if (x_type == DType::BF16 && type == DType::F32) continue;
        const Tensor rows = bench.make({70, 70}, x_type), columns = bench.make({33, 33}, x_type);
        zero(bench.context, rows);
        zero(bench.context, columns);
        for (std::int64_t i = 0; i < 70; ++i) Bench::set(rows, i * 71, 1);
        for (std::int64_t i = 0; i < 33; ++i) Bench::set(columns, i * 34, 1);
        const Tensor z = bench.make({70, 33}, x_type), w = bench.make({33, 70}, type);
        project(bench.context, p, rows, z);
        EXPECT_TRUE(same_bits(values(z), matrix));
        zero(bench.context, w);
        expand_add(bench.context, p, columns, 1.0f, {}, w);
        const std::vector<float> got = values(w);
        for (std::size_t i = 0; i < 70; ++i)
          for (std::size_t j = 0; j < 33; ++j) ASSERT_EQ(got[j * 70 + i], matrix[i * 33 + j]);
      }
    }
}

TEST(ProjectionRows, OfAPartAreRowsOfTheWholeForEveryKind) {
  for (const std::string& kind : kKinds)
    for (const DType type : {DType::F32, DType::BF16}) {
      Bench bench;
      const Projection p = projection(bench, kind, 40, 21, type);
      const std::vector<float> all = whole(bench, p);
      const Tensor tile = bench.strided({7, 21}, 2, type);
      projection_rows(bench.context, p, 29, tile);
      EXPECT_TRUE(same_bits(values(tile), {all.begin() + 29 * 21, all.begin() + 36 * 21})) << kind;
      expect_padding_untouched(tile, 2);
    }
}

/// A number that changes with every bit.
std::uint64_t hash(const std::vector<float>& x) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const float v : x) h = (h ^ __builtin_bit_cast(std::uint32_t, v)) * 0x100000001b3u;
  return h;
}

TEST(ProjectionRows, ArePinnedForEveryKind) {
  // A change here changes every run. The test runs on each instruction set, which all must give these.
  const std::vector<std::pair<std::string, std::uint64_t>> want = {{"gaussian", 0x4bcb43cbfcfce414u},
                                                                   {"orthonormal", 0x3a12720479caf802u},
                                                                   {"hadamard", 0x22b7f11c19ee56afu},
                                                                   {"sparse", 0x73f8d93b135a53ffu}};
  for (const auto& [kind, bits] : want) {
    Bench bench;
    EXPECT_EQ(hash(whole(bench, projection(bench, kind, 203, 75))), bits) << kind;
  }
}

TEST(Project, TransformsArePinned) {
  // Sums of the transforms have one order on every instruction set; a product's may differ.
  const std::vector<std::pair<std::string, std::uint64_t>> want = {{"hadamard", 0xc8a6557bd3a7591au},
                                                                   {"sparse", 0x5450141ffdcee5bau}};
  for (const auto& [kind, bits] : want) {
    if (on_cuda() && kind == "hadamard") continue;  // its sums have another order there
    Bench bench;
    const Projection p = projection(bench, kind, 203, 75);
    const Tensor x = bench.make({37, 203}), z = bench.make({37, 75});
    fill_normal(bench.context, x, 1, 1, 1);
    project(bench.context, p, x, z);
    expand_add(bench.context, p, z, 0.5f, {}, x);
    std::vector<float> out = values(z), more = values(x);
    out.insert(out.end(), more.begin(), more.end());
    EXPECT_EQ(hash(out), bits) << kind;
  }
}

TEST(Project, SameBitsForAnyThreads) {
  for (const std::string& kind : kKinds)
    for (const DType type : {DType::F32, DType::BF16}) {
      SCOPED_TRACE(kind);
      Bench bench;
      const Tensor x = bench.random({51, 700}, 1, 1, type), z = bench.make({51, 515}, type),
                   w = bench.make({51, 700}, type);
      expect_same_bits_for_any_threads([&] {
        const Projection p = projection(bench, kind, 700, 515, type);
        project(bench.context, p, x, z);
        Bench::randomize(w, 2);
        expand_add(bench.context, p, z, 0.75f, {}, w);
        std::vector<float> out = values(z), more = values(w), matrix = whole(bench, p);
        out.insert(out.end(), more.begin(), more.end());
        out.insert(out.end(), matrix.begin(), matrix.end());
        return out;
      });
    }
}

TEST(Project, NumericCaseSharing) {
  COMPACT_NUMERIC_CASE(numeric, "compact_sharing");
  // z of the case comes from its own P; here: the gradient of a group is one product zᵀ [dO_1 | dO_2 | ...],
  // and its column blocks are the separate gradients.
  const double tolerance = numeric["tolerance"]["fp32"];
  const auto& expected = numeric["expected"]["per_input"];
  const std::int64_t N = 6, n = 8, r = 2;
  Bench bench;
  const Tensor x = bench.of({N, n}, numbers(numeric["inputs"]["x"]));
  const Tensor P = bench.of({n, r}, numbers(numeric["inputs"]["P_shared"])), z = bench.make({N, r});
  gemm(bench.context, x, Transpose::No, P, Transpose::No, z, false);
  expect_close(z, numbers(expected["z"]), tolerance);
  const Tensor all = bench.make({N, 16}), group = bench.make({r, 16});
  std::int64_t at = 0;
  for (const auto& dO : numeric["inputs"]["dO"]) {
    const std::vector<double> data = numbers(dO);
    const std::int64_t m = dO["shape"][1];
    const Tensor part = bench.of({N, m}, data), alone = bench.make({r, m});
    set_values(all.columns(at, m), values(part));
    gemm(bench.context, z, Transpose::Yes, part, Transpose::No, alone, false);
    gemm(bench.context, z, Transpose::Yes, all.columns(at, m), Transpose::No, group.columns(at, m), false);
    const std::vector<float> bits = values(alone);
    if (on_cuda() && !is_emulated()) {
      // cuBLASLt may choose another kernel for another leading dimension or alignment.
      expect_close(group.columns(at, m), {bits.begin(), bits.end()}, tolerance);
    } else {
      EXPECT_TRUE(same_bits(bits, values(group.columns(at, m))));
    }
    at += m;
  }
  gemm(bench.context, z, Transpose::Yes, all, Transpose::No, group, false);
  expect_close(group, numbers(expected["G_hat"]), tolerance);
  EXPECT_EQ(z.elements(), expected["kept_elements"].get<std::int64_t>());
}

TEST(Project, PlanEqualsRun) {
  for (const std::string& kind : kKinds)
    for (const auto& [N, n, r] : kProjectionSizes)
      for (const DType type : {DType::F32, DType::BF16}) {
        if (at_most_n(kind) && r > n) continue;
        SCOPED_TRACE(kind + " " + Shape({N, n, r}).text());
        expect_plan_equals_run([&](Bench& bench) {
          const Projection p = projection(bench, kind, n, r, type);
          const Tensor x = bench.random({N, n}, 1, 1, type), z = bench.random({N, r}, 2, 1, type);
          projection_rows(bench.context, p, 0, bench.make({n, r}, type));
          project(bench.context, p, x, z);
          expand_add(bench.context, p, z, 0.5f, {}, x);
        });
      }
}

TEST(Project, CountsTheProductsItMakes) {
  for (const std::string& kind : kKinds) {
    Bench bench(Device::Plan);
    const Projection p = projection(bench, kind, 700, 515);
    project(bench.context, p, bench.make({9, 700}), bench.make({9, 515}));
    expand_add(bench.context, p, bench.make({5, 515}), 1.0f, {}, bench.make({5, 700}));
    const bool by_product = kind == "gaussian" || kind == "orthonormal";
    EXPECT_EQ(bench.context.flops.gemm, by_product ? 2 * 14 * 700 * 515 : 0) << kind;
  }
}

TEST(Project, SlicesStayWithinAMebibyteOrSixtyFourOnACudaDevice) {
  Bench plan(Device::Plan);
  const Projection p = gaussian(11008, 2752);
  project(plan.context, p, plan.make({64, p.n}), plan.make({64, p.r}));
  for (const Allocation& a : plan.arena.ledger().live_at_peak())
    if (a.name == "projection slice") {
      EXPECT_EQ(a.shape, (Shape{on_cuda() ? 6016 : 80, 2752}));
      EXPECT_LE(a.bytes, (on_cuda() ? 64 : 1) << 20);
      return;
    }
  FAIL() << "no slice was taken";
}

TEST(Project, IsMadeOnTheFlyWhereALaunchIsTheCost) {
  const auto of = [](std::int64_t n, std::int64_t r, const char* kind = "gaussian") {
    return Projection{projection_kind_from(kind), 42, 7, 3, n, r, DType::BF16};
  };
  EXPECT_TRUE(cuda::projects_on_the_fly(of(128, 32), 256));
  EXPECT_FALSE(cuda::projects_on_the_fly(of(2048, 512), 64));     // a few tiles, each with too much to make
  EXPECT_FALSE(cuda::projects_on_the_fly(of(128, 32), 1 << 20));  // many waves of tiles
  EXPECT_TRUE(cuda::expands_on_the_fly(of(512, 128), 512));
  EXPECT_FALSE(cuda::expands_on_the_fly(of(2048, 512), 2048));
  EXPECT_FALSE(cuda::expands_on_the_fly(of(512, 128, "orthonormal"), 512));  // it is in memory
}

TEST(Projection, RefusesWhatDoesNotFit) {
  const Projection p = gaussian(8, 4);
  Bench bench;
  const Tensor x = bench.random({3, 8}, 1), z = bench.make({3, 4}), half = bench.make({3, 8}, DType::BF16);
  EXPECT_THROW(project(bench.context, p, z, z), std::logic_error);
  EXPECT_THROW(project(bench.context, p, x, bench.make({2, 4})), std::logic_error);
  EXPECT_THROW(project(bench.context, p, half, z), std::logic_error);  // P is F32
  EXPECT_THROW(project(bench.context, p, x, bench.make({3, 4}, DType::BF16)), std::logic_error);
  EXPECT_THROW(expand_add(bench.context, p, x, 1.0f, {}, x), std::logic_error);
  EXPECT_THROW(expand_add(bench.context, p, z, 1.0f, {}, z), std::logic_error);
  EXPECT_THROW(expand_add(bench.context, p, z, 1.0f, {true, 1, 1u << 24, 1}, x), std::logic_error);
  EXPECT_THROW(projection_rows(bench.context, p, 6, z), std::logic_error);
  EXPECT_THROW(project(bench.context, gaussian(8, 4, 1, 1u << 24), x, z), std::logic_error);
  EXPECT_THROW(prepare_projection(bench.context, p), std::logic_error);
  for (const std::string kind : {"orthonormal", "hadamard"}) {
    Projection wide = gaussian(8, 9);
    wide.kind = projection_kind_from(kind);
    wide.matrix = bench.make({8, 9});
    EXPECT_THROW(projection_rows(bench.context, wide, 0, bench.make({1, 9})), std::logic_error);
  }
  Projection kept = p;
  kept.kind = ProjectionKind::Orthonormal;
  EXPECT_THROW(project(bench.context, kept, x, z), std::logic_error);  // its matrix is missing
  kept.matrix = bench.make({8, 4}, DType::BF16);
  EXPECT_THROW(prepare_projection(bench.context, kept), std::logic_error);
  EXPECT_THROW(projection_kind_from("fourier"), InputError);
}

}  // namespace
}  // namespace compact
