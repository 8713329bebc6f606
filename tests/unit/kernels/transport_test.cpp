#include "unit/kernels/projection_testing.h"

namespace compact {
namespace {

using namespace testing;

/// x [rows, cols] transposed.
std::vector<double> turned(const std::vector<double>& x, std::int64_t rows, std::int64_t cols) {
  std::vector<double> out(x.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j)
      out[static_cast<std::size_t>(j * rows + i)] = x[static_cast<std::size_t>(i * cols + j)];
  return out;
}

TEST(TransportMoment, NumericCase) {
  COMPACT_NUMERIC_CASE(numeric, "compact_transport");
  const auto& inputs = numeric["inputs"];
  const std::int64_t n = inputs["P_old"]["shape"][0], r = inputs["P_old"]["shape"][1],
                     m = inputs["m"]["shape"][1];
  for (const DType type : {DType::F32, DType::BF16}) {
    Bench bench;
    // Projections that keep a matrix take any.
    Projection old_p{ProjectionKind::Orthonormal, 0, 0, 0, n, r, type}, new_p = old_p;
    old_p.matrix = bench.as(bench.of({n, r}, numbers(inputs["P_old"])), type);
    new_p.matrix = bench.as(bench.of({n, r}, numbers(inputs["P_new"])), type);
    const Tensor M = bench.as(bench.of({m, r}, turned(numbers(inputs["m"]), r, m)), type);
    transport_moment(bench.context, old_p, new_p, inputs["scale"].get<float>(), M);
    expect_close(M, turned(numbers(numeric["expected"]["transport"]["m"]), r, m),
                 numeric["tolerance"][type == DType::F32 ? "fp32" : "bf16"].get<double>());
  }
}

TEST(TransportMoment, AgreesWithPlainLoops) {
  for (const std::string& kind : kKinds)
    for (const DType type : {DType::F32, DType::BF16})
      for (const auto& [m, n, r] : {ProjectionSize{1, 1, 1}, ProjectionSize{5, 9, 7},
                                    ProjectionSize{9, 700, 515}, ProjectionSize{1500, 600, 500}}) {
        SCOPED_TRACE(kind + " " + Shape({m, n, r}).text());
        Bench bench;
        const Projection old_p = projection(bench, kind, n, r, type, {1, 2, 3}),
                         new_p = projection(bench, kind, n, r, type, {1, 2, 4});
        const Tensor M = bench.strided({m, r}, 2, type);
        Bench::randomize(M, 1);
        const std::vector<float> start = values(M);
        transport_moment(bench.context, old_p, new_p, 0.5f, M);
        const std::vector<float> P_old = whole(bench, old_p), P_new = whole(bench, new_p);
        for (const std::int64_t row : {std::int64_t{0}, m - 1}) {
          const std::vector<float> part(start.begin() + row * r, start.begin() + (row + 1) * r);
          // The way through the weight's own space, which the op does not go.
          const std::vector<double> whole_size = product(part, P_old, 1, r, n, true);
          std::vector<double> want(static_cast<std::size_t>(r), 0.0);
          for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < r; ++j)
              want[static_cast<std::size_t>(j)] +=
                  0.5 * whole_size[static_cast<std::size_t>(i)] *
                  static_cast<double>(P_new[static_cast<std::size_t>(i * r + j)]);
          expect_close(M.row_range(row, 1), want, type == DType::F32 ? 3e-6 : 0x1.1p-9);
        }
        expect_padding_untouched(M, 2);
        EXPECT_EQ(bench.arena.scratch_mark(), 0u);
      }
}

TEST(TransportMoment, ToTheSameOrthonormalScalesOnly) {
  // P_oldᵀ P_new = (n / r) I.
  Bench bench;
  const Projection p = projection(bench, "orthonormal", 60, 20);
  const Tensor M = bench.random({7, 20}, 1);
  const std::vector<float> start = values(M);
  transport_moment(bench.context, p, p, 20.0f / 60.0f, M);
  expect_close(M, std::vector<double>(start.begin(), start.end()), 2e-6);
}

TEST(TransportMoment, SameBitsForAnyThreadsAndPlanEqualsRun) {
  for (const DType type : {DType::F32, DType::BF16}) {
    Bench bench;
    const Projection old_p = projection(bench, "gaussian", 300, 90, type, {1, 2, 3}),
                     new_p = projection(bench, "gaussian", 300, 90, type, {1, 2, 4});
    const Tensor M = bench.make({150, 90}, type);
    expect_same_bits_for_any_threads([&] {
      Bench::randomize(M, 1);
      transport_moment(bench.context, old_p, new_p, 1, M);
      return values(M);
    });
    for (const std::string& kind : kKinds)
      expect_plan_equals_run([&](Bench& other) {
        transport_moment(other.context, projection(other, kind, 700, 515, type, {1, 2, 3}),
                         projection(other, kind, 700, 515, type, {1, 2, 4}), 1,
                         other.random({1200, 515}, 1, 1, type));
      });
  }
}

TEST(TransportMoment, NeedsNoTemporaryOfTheSizeOfTheWeight) {
  Bench plan(Device::Plan);
  const std::int64_t n = 11008, r = 2752, m = 4096;
  const Projection p = projection(plan, "gaussian", n, r, DType::BF16);
  const Tensor M = plan.make({m, r}, DType::BF16);
  const auto before = plan.arena.ledger().peak();
  transport_moment(plan.context, p, p, 1, M);
  // A CUDA device has larger slices, and a workspace for its products.
  EXPECT_LE(plan.arena.ledger().peak() - before, 4 * r * r + ((on_cuda() ? 72 : 8) << 20));
}

TEST(TransportMoment, RefusesProjectionsThatDiffer) {
  Bench bench;
  const Projection p = projection(bench, "gaussian", 8, 4);
  const Tensor M = bench.random({3, 4}, 1);
  EXPECT_THROW(transport_moment(bench.context, p, projection(bench, "gaussian", 9, 4), 1, M),
               std::logic_error);
  EXPECT_THROW(transport_moment(bench.context, p, projection(bench, "gaussian", 8, 3), 1, M),
               std::logic_error);
  EXPECT_THROW(transport_moment(bench.context, p, p, 1, bench.random({3, 5}, 1)), std::logic_error);
}

}  // namespace
}  // namespace compact
