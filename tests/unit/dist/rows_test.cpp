#include "compact/dist/rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace compact {
namespace {

TEST(RowsOf, RanksHaveEveryRowOnce) {
  std::vector<float> memory(301 * 3);
  for (const std::int64_t rows : {1, 2, 3, 5, 8, 13, 64, 100, 301})
    for (int size = 1; size <= 17; ++size) {
      const Tensor t(memory.data(), {rows, 3}, DType::F32);
      std::int64_t next = 0, least = rows, most = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Rows own = rows_of(t, rank, size);
        EXPECT_EQ(own.first, next) << rank << " of " << size;
        next += own.count;
        least = std::min(least, own.count);
        most = std::max(most, own.count);
        const Tensor view = rows_in(t, own);
        EXPECT_EQ(view.rows(), own.count);
        EXPECT_EQ(view.f32(), memory.data() + own.first * 3);
      }
      EXPECT_EQ(next, rows);
      EXPECT_LE(most - least, 1);
      EXPECT_EQ(rows_of(t, size - 1, size).count, most) << rows << " rows of " << size << " ranks";
    }
}

TEST(RowsOf, ASingleRowIsTheLastRanks) {
  std::vector<float> memory(24);
  const Tensor norm(memory.data(), {24}, DType::F32);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(rows_of(norm, rank, 3).count, rank == 2 ? 1 : 0);
  EXPECT_EQ(rows_in(norm, rows_of(norm, 2, 3)).elements(), 24);
}

TEST(RowsOf, LeadingDimensionsAreFolded) {
  std::vector<float> memory(4 * 5 * 2);
  const Tensor t(memory.data(), {4, 5, 2}, DType::F32);
  const Rows own = rows_of(t, 1, 3);  // of 20 rows
  EXPECT_EQ(own.first, 6);
  EXPECT_EQ(own.count, 7);
  EXPECT_EQ(rows_in(t, own).f32(), memory.data() + 12);
}

// rows · rank must not be cut to 32 bits.
TEST(RowsOf, MoreRowsThanAnIntHolds) {
  const std::int64_t rows = std::int64_t{5} << 31;
  const Tensor t(nullptr, {rows, 1}, DType::BF16);
  EXPECT_EQ(rows_of(t, 3, 4).first, rows / 4 * 3);
  EXPECT_EQ(rows_of(t, 3, 4).count, rows / 4);
}

}  // namespace
}  // namespace compact
