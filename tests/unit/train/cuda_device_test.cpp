#include "compact/train/cuda_device.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "compact/core/error.h"
#include "cuda_emulation/faults.h"
#include "cuda_emulation/fiber_order.h"

/// Which card a rank takes, on machines that the emulation shows.
namespace compact {
namespace {

constexpr int kDriver = 99000;  // newer than any runtime

struct CardChoice : ::testing::Test {
  void SetUp() override {
    if (!testing::is_emulated()) GTEST_SKIP() << "about machines that this is not";
  }
  void TearDown() override { testing::set_machine({.driver = kDriver}); }

  /// What `size` ranks of this machine get, "card 2" or the error.
  static std::vector<std::string> choices(int size, int first) {
    std::vector<std::unique_ptr<Communicator>> ranks = make_thread_communicators(size);
    std::vector<std::string> all(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < all.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          all[i] = "card " + std::to_string(choose_card(*ranks[i], first));
        } catch (const std::runtime_error& error) {
          all[i] = error.what();
        }
        EXPECT_EQ(ranks[i]->gather_texts("still here").size(), all.size());
      });
    for (std::thread& thread : threads) thread.join();
    return all;
  }
};

TEST_F(CardChoice, IsByLocalRank) {
  testing::set_machine({.driver = kDriver, .devices = 4});
  EXPECT_EQ(choices(1, 2), std::vector<std::string>{"card 2"});
  EXPECT_EQ(choices(4, 0), (std::vector<std::string>{"card 0", "card 1", "card 2", "card 3"}));
  EXPECT_EQ(choices(2, 2), (std::vector<std::string>{"card 2", "card 3"}));
  EXPECT_EQ(cuda::device_info(3).pci_bus, "0000:13:00.0");
}

TEST_F(CardChoice, TooFewCardsAreNamed) {
  for (const auto& [devices, ranks, first, words] :
       {std::tuple{2, 3, 0, "has 3 ranks and 2 CUDA devices, and"},
        {1, 2, 0, "has 2 ranks and 1 CUDA device, and"},
        {4, 3, 2, "has 3 ranks and 2 CUDA devices from cuda.device 2 on, and"}}) {
    testing::set_machine({.driver = kDriver, .devices = devices});
    for (const std::string& error : choices(ranks, first)) {
      EXPECT_NE(error.find(words), std::string::npos) << error;
      EXPECT_NE(error.find("start at most " + std::to_string(devices - first) + " there"), std::string::npos)
          << error;
    }
  }
}

TEST_F(CardChoice, ErrorsOfADeviceComeThrough) {
  testing::set_machine({.driver = kDriver, .devices = 2});
  EXPECT_NE(choices(2, 5)[0].find("cuda.device is 5, but the driver shows 2"), std::string::npos);
  testing::set_machine({.driver = kDriver, .devices = 0});
  for (const std::string& error : choices(2, 0))
    EXPECT_NE(error.find("shows no CUDA device"), std::string::npos) << error;
  testing::set_machine({.driver = 0});
  for (const std::string& error : choices(2, 0))
    EXPECT_NE(error.find("no NVIDIA driver"), std::string::npos) << error;
}

TEST_F(CardChoice, QueuesOpenOnThem) {
  testing::set_machine({.driver = kDriver, .devices = 3});
  RunConfig run;
  run.device = "cuda";
  run.cuda.device = 1;
  std::vector<std::unique_ptr<Communicator>> ranks = make_thread_communicators(2);
  std::vector<int> devices(2);
  std::thread other([&] { devices[1] = open_queue(run, *ranks[1])->options().device; });
  devices[0] = open_queue(run, *ranks[0])->options().device;
  other.join();
  EXPECT_EQ(devices, (std::vector<int>{1, 2}));
  run.device = "cpu";
  EXPECT_EQ(open_queue(run, *ranks[0]), nullptr);
}

}  // namespace
}  // namespace compact
