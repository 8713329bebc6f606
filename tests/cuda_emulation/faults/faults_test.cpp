#include "cuda_emulation/faults/faults.h"

#include <gtest/gtest-spi.h>

#include <cstdlib>
#include <optional>

#include "kernels/elementwise_cuda.h"
#include "unit/kernels/op_testing.h"

/// Each kernel that breaks a rule is found, and the same kernel without its fault is not. What
/// AddressSanitizer alone can see is tested in the program that is built with it (test_emulation_asan).
namespace compact {
namespace {

namespace faults = cuda::faults;

[[maybe_unused]] const int device_is_set = setenv("COMPACT_TEST_DEVICE", "cuda", 1);

using testing::Bench;
using testing::same_bits;
using testing::values;

constexpr std::int64_t kN = faults::kThreads;

class EmulationFaults : public ::testing::Test {
 protected:
  EmulationFaults() : queue(*bench.queue), x(bench.random({kN}, 1)), y(bench.make({kN})) {}
  ~EmulationFaults() override { testing::set_fiber_order(0); }

  /// y, after `run` in the order of `seed`.
  template <typename Run>
  std::vector<float> in_order(std::uint32_t seed, Run run) {
    testing::set_fiber_order(seed);
    run();
    return values(y);
  }
  template <typename Run>
  void expect_depends_on_order(Run run) {
    const std::vector<float> first = in_order(0, run);
    EXPECT_FALSE(same_bits(in_order(1, run), first));
    EXPECT_FALSE(same_bits(in_order(2, run), first));
  }
  template <typename Run>
  void expect_any_order(Run run) {
    const std::vector<float> first = in_order(0, run);
    for (const float v : first) EXPECT_FALSE(std::isnan(v));
    for (std::uint32_t seed = 1; seed < 9; ++seed) EXPECT_TRUE(same_bits(in_order(seed, run), first)) << seed;
  }
  /// `run` fails with a sentence that has all the words.
  template <typename Run>
  static void expect_error(Run run, const std::vector<std::string>& words) {
    try {
      run();
      FAIL() << "no error";
    } catch (const RunError& error) {
      for (const std::string& word : words)
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << " in: " << error.what();
    }
  }

  Bench bench{Device::Cuda, 1 << 20};
  cuda::Queue& queue;
  Tensor x, y;
};
using EmulationFaultsDeathTest = EmulationFaults;

TEST_F(EmulationFaults, MissingBlockBarrier) {
  expect_any_order([&] { faults::block_exchange(queue, x, y, true); });
  expect_depends_on_order([&] { faults::block_exchange(queue, x, y, false); });
}

TEST_F(EmulationFaults, MissingWarpBarrier) {
  expect_any_order([&] { faults::warp_exchange(queue, x, y, true); });
  expect_depends_on_order([&] { faults::warp_exchange(queue, x, y, false); });
}

TEST_F(EmulationFaults, BlocksThatDependOnEachOther) {
  expect_depends_on_order([&] {
    testing::set_values(y, values(x));
    faults::in_place_across_blocks(queue, y);
  });
}

TEST_F(EmulationFaults, ThreadsThatDoNotMeet) {
  using faults::Meeting;
  const auto run = [&](Meeting how) { return [this, how] { faults::meet(queue, how, y); }; };
  for (std::uint32_t seed : {0u, 1u, 2u}) {
    testing::set_fiber_order(seed);
    expect_error(run(Meeting::Missing), {"meet", "31 of 64 threads wait"});
    expect_error(run(Meeting::Left), {"meet", "block (0, 0, 0)", "63 of 64 threads wait"});
    expect_error(run(Meeting::ElsewhereInWarp), {"different lines", "faults_cuda.cu"});
    expect_error(run(Meeting::ElsewhereInBlock), {"different lines", "faults_cuda.cu"});
    expect_error(run(Meeting::Mask), {"leaves lanes of the warp out"});
    expect_error(run(Meeting::AbsentLane), {"a lane which is not there"});
    // The next kernel is not disturbed by fibers that were left behind.
    faults::block_exchange(queue, x, y, true);
    EXPECT_EQ(values(y)[1], values(x)[0]);
  }
}

TEST_F(EmulationFaults, MisalignedVectors) {
  faults::load_vectors(queue, x, 4, y);
  faults::store_vectors(queue, x, 4);
  expect_error([&] { faults::load_vectors(queue, x, 1, y); },
               {"load_vectors", "thread (0, 0, 0)", "misaligned"});
  expect_error([&] { faults::store_vectors(queue, x, 2); }, {"store_vectors", "misaligned"});
}

TEST_F(EmulationFaults, ImpossibleLaunches) {
  expect_error([&] { faults::in_place_across_blocks(queue, x.columns(0, 0)); },
               {"in_place", "without blocks"});
}

TEST_F(EmulationFaults, ReadsOfUninitialisedMemory) {
  for (const auto kind : {faults::Kind::Static, faults::Kind::Dynamic}) {
    faults::read_shared(queue, kind, 0, true, y);
    for (const float v : values(y)) EXPECT_EQ(v, 1);
    faults::read_shared(queue, kind, 0, false, y);  // although the block before has filled it
    for (const float v : values(y)) EXPECT_TRUE(std::isnan(v));
  }
  const Tensor scratch = bench.arena.scratch("new", {kN}, DType::F32);
  for (const float v : values(scratch)) EXPECT_TRUE(std::isnan(v));
}

TEST_F(EmulationFaults, ReadOfReleasedScratchIsPoison) {
  if (faults::is_sanitized()) GTEST_SKIP() << "the sanitizer stops there: see TheSanitizerStops";
  for (const bool saved : {false, true}) {
    std::optional<ScratchScope> scratch_scope(bench.arena);
    std::optional<SavedScope> saved_scope(bench.arena);
    const Tensor t =
        saved ? bench.arena.saved("t", {kN}, DType::F32) : bench.arena.scratch("t", {kN}, DType::F32);
    cuda::fill(queue, t, 1);
    faults::read_at(queue, t, 3, y);
    EXPECT_EQ(values(y)[0], 1);
    scratch_scope.reset();
    saved_scope.reset();
    faults::read_at(queue, t, 3, y);
    EXPECT_TRUE(std::isnan(values(y)[0]));
  }
}

TEST_F(EmulationFaults, AsynchronousCopies) {
  using faults::Copying;
  const auto run = [&](Copying how) {
    return [this, how] { faults::copy_through_shared(queue, how, x, y); };
  };
  const auto poisoned = [&] {
    int count = 0;
    for (const float v : values(y)) count += std::isnan(v);
    return count;
  };
  expect_any_order(run(Copying::Sound));
  EXPECT_TRUE(same_bits(values(y), values(x)));
  for (const Copying how : {Copying::NoWait, Copying::OneGroupLess, Copying::NotCommitted})
    for (std::uint32_t seed : {0u, 1u, 2u}) {
      in_order(seed, run(how));
      EXPECT_EQ(poisoned(), how == Copying::NoWait ? kN : kN / 2);
    }
  expect_error(run(Copying::NeverWaited), {"copy_through_shared", "never waits for"});
  expect_depends_on_order(run(Copying::NoBarrier));
  expect_depends_on_order(run(Copying::RefilledEarly));
}

// ---- writes outside: guards show them, and the sanitizer stops at them ----------------------------------

TEST_F(EmulationFaults, WriteOutsideOfATensor) {
  if (faults::is_sanitized()) GTEST_SKIP() << "the sanitizer stops there: see TheSanitizerStops";
  EXPECT_NONFATAL_FAILURE(
      {
        Bench other(Device::Cuda, 1 << 16);
        faults::write_at(*other.queue, other.make({kN}), kN);
      },
      "a write outside of a tensor");
}

TEST_F(EmulationFaults, WriteOutsideOfSharedMemory) {
  if (faults::is_sanitized()) GTEST_SKIP() << "the sanitizer stops there: see TheSanitizerStops";
  for (const int at : {-1, static_cast<int>(kN), static_cast<int>(kN) + 31}) {
    expect_error([&] { faults::write_shared(queue, faults::Kind::Static, at); },
                 {"write_shared", "outside of a shared array"});
    expect_error([&] { faults::write_shared(queue, faults::Kind::Dynamic, at); },
                 {"write_shared", "outside of the dynamic shared memory"});
  }
  faults::write_shared(queue, faults::Kind::Static, kN - 1);
  faults::write_shared(queue, faults::Kind::Dynamic, kN - 1);
}

TEST_F(EmulationFaultsDeathTest, WriteOutsideOfAnAllocation) {
  if (faults::is_sanitized()) GTEST_SKIP() << "the sanitizer stops there: see TheSanitizerStops";
  EXPECT_DEATH(
      {
        Bench other(Device::Cuda, 1 << 12);
        faults::write_at(*other.queue, other.arena.persistent("x", {1}, DType::F32, Category::Weights), 1024);
      },
      "a write outside of an allocation");
}

TEST_F(EmulationFaultsDeathTest, TheSanitizerStops) {
  if (!faults::is_sanitized()) GTEST_SKIP() << "reads out of bounds are seen by test_emulation_asan only";
  const auto stops = [](auto run) { EXPECT_DEATH(run(), "use-after-poison"); };
  const Tensor odd = bench.arena.persistent("odd", {kN + 1}, DType::F32, Category::Weights);
  testing::set_values(odd, testing::random_values(kN + 1, 1));
  faults::read_at(queue, odd, kN, y);
  stops([&] { faults::read_at(queue, odd, kN + 1, y); });  // the bytes that align the next tensor
  stops([&] { faults::read_at(queue, odd, -1, y); });
  stops([&] { faults::read_at(queue, x, kN, y); });
  stops([&] { faults::write_at(queue, x, kN); });
  stops([&] { faults::load_vectors(queue, odd, kN, y); });
  for (const auto kind : {faults::Kind::Static, faults::Kind::Dynamic}) {
    faults::read_shared(queue, kind, 0, true, y);
    stops([&] { faults::read_shared(queue, kind, 1, true, y); });
    stops([&] { faults::write_shared(queue, kind, -1); });
    stops([&] { faults::write_shared(queue, kind, kN); });
  }
  Tensor released;
  {
    ScratchScope scope(bench.arena);
    released = bench.arena.scratch("t", {kN}, DType::F32);
    cuda::fill(queue, released, 1);
    faults::read_at(queue, released, 3, y);
  }
  stops([&] { faults::read_at(queue, released, 3, y); });
  released = bench.arena.scratch("again", {kN}, DType::F32);
  faults::read_at(queue, released, 3, y);
  EXPECT_TRUE(std::isnan(values(y)[0]));
}

}  // namespace
}  // namespace compact
