#include "compact/train/machine.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cstdlib>
#include <filesystem>

namespace compact {
namespace {

// A speed measured in a busy moment must not stay for ever: seeing a faster one measures again.
TEST(Machine, GemmPeakIsCachedAndNeverBelowWhatWasSeen) {
  char name[] = "/tmp/compact_peak_XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  setenv("XDG_CACHE_HOME", name, 1);
  const double first = gemm_peak(0);
  EXPECT_GT(first, 1e8);
  EXPECT_TRUE(std::filesystem::exists(std::string(name) + "/compact/gemm_peak.json"));
  EXPECT_EQ(gemm_peak(0.5 * first), first);
  EXPECT_GE(gemm_peak(1e18), 1e18);
  EXPECT_GE(gemm_peak(0), 1e18) << "the larger value is the cached one now";
  std::filesystem::remove_all(name);
  unsetenv("XDG_CACHE_HOME");
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
