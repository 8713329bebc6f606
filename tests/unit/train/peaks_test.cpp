#include <gtest/gtest.h>

#include "compact/cuda/device.h"

namespace compact::cuda {
namespace {

void expect_peaks(const char* name, double bf16, double fp32) {
  const auto peaks = device_peaks(name);
  ASSERT_TRUE(peaks.has_value()) << name;
  EXPECT_NEAR(peaks->bf16, bf16 * 1e12, 1e6) << name;
  EXPECT_NEAR(peaks->fp32, fp32 * 1e12, 1e6) << name;
}

TEST(DevicePeaks, KnowsCardsByTheDriversName) {
  expect_peaks("NVIDIA A100-SXM4-40GB", 312, 19.5);
  expect_peaks("NVIDIA A100-SXM4-80GB", 312, 19.5);
  expect_peaks("NVIDIA A100 80GB PCIe", 312, 19.5);
  expect_peaks("A100-PCIE-40GB", 312, 19.5);  // as older drivers wrote it
  expect_peaks("NVIDIA H100 80GB HBM3", 989.4, 66.9);
  expect_peaks("NVIDIA H100 PCIe", 756, 51);
  expect_peaks("NVIDIA H200", 989.4, 66.9);
  expect_peaks("NVIDIA L4", 121, 30.3);
  expect_peaks("NVIDIA L40S", 362, 91.6);
  expect_peaks("NVIDIA A10", 125, 31.2);
  expect_peaks("NVIDIA GeForce RTX 3090", 71.2, 35.6);
  expect_peaks("GeForce RTX 3090", 71.2, 35.6);
  expect_peaks("NVIDIA GeForce RTX 4090", 165.2, 82.6);
  expect_peaks("NVIDIA GeForce RTX 4070 Ti SUPER", 88.2, 44.1);
  expect_peaks("NVIDIA GeForce RTX 5090", 209.6, 104.8);
}

// A card that only looks like a known one has other peaks.
TEST(DevicePeaks, SaysNothingOfOthers) {
  for (const char* name : {"", "NVIDIA ", "NVIDIA A10G", "NVIDIA A1000", "NVIDIA L400", "NVIDIA H100",
                           "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA GeForce RTX 3080 Laptop GPU",
                           "NVIDIA GeForce RTX 4090 D", "Tesla V100-SXM2-16GB", "emulated CUDA device"})
    EXPECT_FALSE(device_peaks(name).has_value()) << name;
}

}  // namespace
}  // namespace compact::cuda
