#include "compact/train/machine.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "compact/cuda/device.h"
#include "compact/cuda/queue.h"
#include "cuda_emulation/fiber_order.h"

namespace compact {
namespace {

// Speeds are cached in a folder of the test's own.
class MachineSpeeds : public ::testing::Test {
 protected:
  MachineSpeeds() {
    char name[] = "/tmp/compact_peak_XXXXXX";
    folder_ = mkdtemp(name);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~MachineSpeeds() override {
    std::filesystem::remove_all(folder_);
    unsetenv("XDG_CACHE_HOME");
  }
  std::string folder_;
};

// A speed measured in a busy moment must not stay for ever: seeing a faster one measures again.
TEST_F(MachineSpeeds, AreCachedAndNeverBelowWhatWasSeen) {
  const auto speeds = {
      std::function<double(double)>([](double seen) { return gemm_peak(DType::F32, seen); }),
      std::function<double(double)>([](double seen) { return gemm_peak(DType::BF16, seen); }),
      std::function<double(double)>([](double seen) { return memory_bandwidth(seen); })};
  for (const auto& speed : speeds) {
    const double first = speed(0);
    EXPECT_GT(first, 1e8);
    EXPECT_EQ(speed(0.5 * first), first);
    EXPECT_GE(speed(1e18), 1e18);
    EXPECT_GE(speed(0), 1e18) << "the larger value is the cached one now";
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/compact/machine.json"));
}

TEST_F(MachineSpeeds, EachHasAPlaceOfItsOwn) {
  gemm_peak(DType::F32, 3e18);
  memory_bandwidth(2e18);
  EXPECT_LT(gemm_peak(DType::BF16, 0), 1e18);
  EXPECT_EQ(memory_bandwidth(0), 2e18);
  EXPECT_EQ(gemm_peak(DType::F32, 0), 3e18);
}

TEST_F(MachineSpeeds, ABrokenCacheOnlyMeansMeasuring) {
  std::filesystem::create_directory(folder_ + "/compact");
  std::ofstream(folder_ + "/compact/machine.json") << "{\"x\": ";
  EXPECT_GT(gemm_peak(DType::F32, 0), 1e8);
}

// A card's speeds are measured on it and stand beside the CPU's under its own name.
TEST_F(MachineSpeeds, OfACudaDevice) {
  if (!cuda::is_built()) GTEST_SKIP() << "no CUDA backend in this build";
  cuda::Queue queue({});
  const double bf16 = gemm_peak(DType::BF16, 0, &queue), memory = memory_bandwidth(0, &queue);
  EXPECT_GT(bf16, 1e6);
  EXPECT_GT(memory, 1e6);
  EXPECT_EQ(gemm_peak(DType::BF16, 0.5 * bf16, &queue), bf16) << "from the cache";
  EXPECT_EQ(memory_bandwidth(0.5 * memory, &queue), memory);
  EXPECT_EQ(gemm_peak(DType::F32, 3e18, &queue), 3e18);
  EXPECT_LT(gemm_peak(DType::F32, 0), 1e18) << "that of the CPU";
  cuda::Queue tf32({.tf32 = true});
  EXPECT_LT(gemm_peak(DType::F32, 0, &tf32), 1e18) << "other products";
  // The emulated device has no data sheet; of a card's it is that.
  if (testing::is_emulated()) {
    EXPECT_EQ(reference_peak(DType::F32, 0, &queue), 3e18);
  }
  EXPECT_EQ(reference_peak(DType::BF16, 5e18, &queue), 5e18);
}

TEST(Machine, ThreadsAreSharedOutAmongRanks) {
  const int all = use_threads(0, 1);
  EXPECT_GE(all, 1);
  EXPECT_EQ(use_threads(0, 1000), 1);
  EXPECT_EQ(use_threads(3, 2), 3);
  EXPECT_EQ(omp_get_max_threads(), 3);
  use_threads(0, 1);
}

TEST(Machine, KnowsItsMemory) {
  EXPECT_GT(resident_bytes(), 1 << 20);
  EXPECT_GT(available_bytes(), 1 << 20);
  EXPECT_NO_THROW(require_available(1, ""));
  try {
    require_available(std::int64_t{1} << 60, "  weights  1 EiB\n");
    FAIL() << "no error";
  } catch (const std::exception& e) {
    EXPECT_NE(std::string(e.what()).find("weights"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("memory"), std::string::npos);
  }
}

}  // namespace
}  // namespace compact
