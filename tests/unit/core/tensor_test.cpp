#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "compact/core/error.h"
#include "compact/core/tensor.h"

namespace compact {
namespace {

TEST(Tensor, ViewsShareMemory) {
  float data[24];
  for (int i = 0; i < 24; ++i) data[i] = static_cast<float>(i);
  const Tensor t(data, {2, 3, 4}, DType::F32);
  EXPECT_EQ(t.rows(), 6);
  EXPECT_EQ(t.cols(), 4);
  EXPECT_EQ(t.bytes(), 96);
  EXPECT_TRUE(t.contiguous());
  const Tensor block = t.columns(1, 2);  // [6, 2], rows 4 apart
  EXPECT_FALSE(block.contiguous());
  EXPECT_EQ(block.f32()[5 * block.ld + 1], 22);
  const Tensor rows = t.row_range(2, 3);
  EXPECT_EQ(rows.shape, (Shape{3, 4}));
  EXPECT_EQ(rows.f32()[0], 8);
  EXPECT_EQ(t.reshaped({4, 6}).f32()[7], 7);
  EXPECT_EQ(t.slice(5, 3).f32()[2], 7);
  EXPECT_EQ(t.shape.text(), "[2, 3, 4]");
}

TEST(Tensor, ViewsOutsideAreBugs) {
  float data[12];
  const Tensor t(data, {3, 4}, DType::F32);
  EXPECT_THROW(t.columns(3, 2), std::logic_error);
  EXPECT_THROW(t.row_range(-1, 1), std::logic_error);
  EXPECT_THROW(t.row_range(2, 2), std::logic_error);
  EXPECT_THROW(t.slice(10, 3), std::logic_error);
  EXPECT_THROW(t.reshaped({5, 2}), std::logic_error);
  EXPECT_THROW(t.columns(0, 2).reshaped({6}), std::logic_error);
  EXPECT_THROW(t.columns(0, 2).slice(0, 1), std::logic_error);
}

TEST(Tensor, NoTensorAndNoMemory) {
  EXPECT_TRUE(Tensor().empty());
  EXPECT_EQ(Shape().elements(), 0);
  // A view of a tensor of the plan device has no address either.
  const Tensor planned(nullptr, {3, 4}, DType::BF16);
  EXPECT_EQ(planned.row_range(1, 2).data, nullptr);
  EXPECT_EQ(planned.bytes(), 24);
}

// Sizes and offsets beyond 2^31 and 2^32 (reference numbers: ../shared/cases/numeric/sizes_64bit).
TEST(Tensor, SixtyFourBitSizes) {
  const Tensor logits(nullptr, {263, 256, 32000}, DType::BF16);
  EXPECT_EQ(logits.elements(), 2154496000);
  EXPECT_EQ(logits.bytes(), 4308992000);
  std::ifstream file(COMPACT_SOURCE_DIR "/../shared/cases/numeric/sizes_64bit.json");
  if (!file) GTEST_SKIP() << "../shared/cases/numeric/sizes_64bit.json is not here";
  for (const auto& row : nlohmann::json::parse(file)["expected"]["rows"]) {
    const auto d = row["dims"].get<std::vector<std::int64_t>>();
    const Shape shape = d.size() == 4 ? Shape{d[0], d[1], d[2], d[3]} : Shape{d[0], d[1], d[2]};
    const Tensor t(nullptr, shape, row["bytes_each"] == 2 ? DType::BF16 : DType::F32);
    EXPECT_EQ(t.elements(), row["elements"].get<std::int64_t>());
    EXPECT_EQ(t.bytes(), row["bytes"].get<std::int64_t>());
  }
}

}  // namespace
}  // namespace compact
