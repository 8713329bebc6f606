#include <array>

#include "compact/kernels/elementwise.h"
#include "unit/kernels/adam_testing.h"
#include "unit/kernels/projection_testing.h"

/// Rows of a weight that are updated apart get the bits which an update of the whole gives them
/// (Rounding::first_row).
namespace compact {
namespace {

using testing::same_bits;
using testing::values;
using testing::adam::kTypes;
using testing::adam::some_step;

struct Bench : testing::adam::Bench {
  /// The same values in two tensors.
  std::array<Tensor, 2> twice(Shape shape, std::uint32_t seed, DType dtype, float scale = 1) {
    return {random(shape, seed, scale, dtype), random(shape, seed, scale, dtype)};
  }
};

/// Runs of rows, some of one row, none at a multiple of the rows that a loop or a tile takes.
const std::vector<std::int64_t> kBounds = {0, 1, 6, 39, 40, 75, 131};
constexpr std::int64_t kRows = 131;

/// update(first row, rows) for all runs.
template <typename Update>
void in_parts(Update update) {
  for (std::size_t i = 0; i + 1 < kBounds.size(); ++i) update(kBounds[i], kBounds[i + 1] - kBounds[i]);
}

Rounding rounding(std::int64_t first_row = 0) { return {true, 0x123456789abcdefULL, 77, 1000, first_row}; }

TEST(RowsApart, AdamwGivesTheirBits) {
  for (const DType w_type : kTypes)
    for (const DType s_type : kTypes)
      for (const bool masters : {false, true})
        for (const std::int64_t cols : {1, 37, 64}) {
          Bench bench;
          const Shape shape{kRows, cols};
          const auto w = bench.twice(shape, 1, w_type), g = bench.twice(shape, 2, DType::F32),
                     m = bench.twice(shape, 3, s_type), master = bench.twice(shape, 5, DType::F32);
          const std::array v{bench.make(shape, s_type), bench.make(shape, s_type)};
          for (const Tensor& t : v) fill(bench.context, t, 0.3f);
          adamw(bench.context, some_step(), rounding(), w[0], g[0], m[0], v[0],
                masters ? master[0] : Tensor());
          in_parts([&](std::int64_t first, std::int64_t count) {
            const auto rows = [&](const Tensor& t) { return t.row_range(first, count); };
            adamw(bench.context, some_step(), rounding(first), rows(w[1]), rows(g[1]), rows(m[1]), rows(v[1]),
                  masters ? rows(master[1]) : Tensor());
          });
          for (const auto& pair : {w, m, v, master}) EXPECT_TRUE(same_bits(values(pair[0]), values(pair[1])));
        }
}

TEST(RowsApart, ADirectionGivesTheirBits) {
  for (const DType g_type : kTypes)
    for (const DType s_type : kTypes)
      for (const bool by_row : {false, true})
        for (const std::int64_t cols : {1, 37, 64}) {
          Bench bench;
          const Shape shape{kRows, cols}, sizes = by_row ? Shape{kRows} : shape;
          const auto g = bench.twice(shape, 2, g_type), m = bench.twice(shape, 3, s_type);
          const std::array v{bench.make(sizes, s_type), bench.make(sizes, s_type)};
          for (const Tensor& t : v) fill(bench.context, t, 0.3f);
          adam_direction(bench.context, some_step(), rounding(), g[0], m[0], v[0]);
          in_parts([&](std::int64_t first, std::int64_t count) {
            adam_direction(bench.context, some_step(), rounding(first), g[1].row_range(first, count),
                           m[1].row_range(first, count),
                           by_row ? v[1].slice(first, count) : v[1].row_range(first, count));
          });
          for (const auto& pair : {g, m, v}) EXPECT_TRUE(same_bits(values(pair[0]), values(pair[1])));
        }
}

// How oneDNN adds up a product depends on its rows and on the CPU: the last bits of its sums may differ, and
// few elements are then rounded to another bf16 value. Other random words would change every second one.
void expect_alike(const Tensor& a, const Tensor& b, bool bits) {
  const std::vector<float> x = values(a), y = values(b);
  EXPECT_TRUE(!bits || same_bits(x, y));
  std::size_t apart = 0;
  for (std::size_t i = 0; i < x.size(); ++i) apart += std::abs(x[i] - y[i]) > 1e-5f ? 1 : 0;
  EXPECT_LE(apart, x.size() / 100);
}

TEST(RowsApart, ExpansionGivesTheirBits) {
  for (const std::string& kind : testing::kKinds)
    for (const DType w_type : kTypes)
      for (const DType d_type : kTypes)
        for (const bool masters : {false, true}) {
          if (masters && w_type != DType::F32) continue;
          SCOPED_TRACE(kind + " " + std::string(name_of(w_type)) + " " + std::string(name_of(d_type)) +
                       (masters ? " masters" : ""));
          Bench bench;
          const std::int64_t n = 70, r = 19;
          const Projection p = projection(bench, kind, n, r, w_type == d_type ? w_type : DType::BF16);
          const auto w = bench.twice({kRows, n}, 1, w_type), d = bench.twice({kRows, r}, 2, d_type),
                     nearest = bench.twice({kRows, n}, 3, DType::BF16);
          expand_add(bench.context, p, d[0], 0.9f, rounding(), w[0], nullptr,
                     masters ? nearest[0] : Tensor());
          in_parts([&](std::int64_t first, std::int64_t count) {
            const auto rows = [&](const Tensor& t) { return t.row_range(first, count); };
            expand_add(bench.context, p, rows(d[1]), 0.9f, rounding(first), rows(w[1]), nullptr,
                       masters ? rows(nearest[1]) : Tensor());
          });
          const bool bits = testing::on_cuda() || kind == "hadamard" || kind == "sparse";
          expect_alike(w[0], w[1], bits);
          expect_alike(nearest[0], nearest[1], bits);
        }
}

}  // namespace
}  // namespace compact
