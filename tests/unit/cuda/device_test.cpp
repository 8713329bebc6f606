#include "compact/cuda/device.h"

#include <gtest/gtest.h>

#include "compact/core/error.h"
#include "compact/cuda/queue.h"
#include "cuda_emulation/faults.h"
#include "cuda_emulation/fiber_order.h"

/// What is said where there is no device to use.
namespace compact {
namespace {

using testing::EmulatedMachine;

constexpr int kDriver = 99000;  // newer than any runtime

struct Device : ::testing::Test {
  void SetUp() override {
    if (!testing::is_emulated()) GTEST_SKIP() << "about machines that this is not";
  }
  void TearDown() override { testing::set_machine({.driver = kDriver}); }
  static std::string error_on(const EmulatedMachine& machine) {
    testing::set_machine(machine);
    try {
      cuda::Queue queue({});
    } catch (const RunError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(Device, IsMissedInOneSentence) {
  EXPECT_EQ(error_on({.driver = kDriver}), "");
  EXPECT_NE(error_on({.driver = 0}).find("no NVIDIA driver"), std::string::npos);
  const std::string old_driver = error_on({.driver = 11040});
  EXPECT_NE(old_driver.find("too old: it supports CUDA 11.4"), std::string::npos) << old_driver;
  EXPECT_NE(error_on({.driver = kDriver, .devices = 0}).find("shows no CUDA device"), std::string::npos);
  const std::string old_card = error_on({.driver = kDriver, .major = 7, .minor = 5});
  const std::string other = error_on({.driver = kDriver, .major = 12, .has_code = false});
  EXPECT_NE(other.find("no code for emulated CUDA device"), std::string::npos) << other;
  EXPECT_NE(old_card.find("compute capability 7.5, and compact needs 8.0"), std::string::npos) << old_card;
}

TEST_F(Device, IsDescribed) {
  testing::set_machine({.driver = 13020});
  const cuda::DeviceInfo info = cuda::device_info(0);
  EXPECT_EQ(info.major, 9);
  EXPECT_EQ(cuda::describe(info).substr(0, 71),
            "emulated CUDA device, compute capability 9.0, 8.0 GiB, driver CUDA 13.2")
      << cuda::describe(info);
  EXPECT_THROW(cuda::device_info(1), InputError);
  EXPECT_THROW(cuda::device_info(-1), InputError);
}

}  // namespace
}  // namespace compact
