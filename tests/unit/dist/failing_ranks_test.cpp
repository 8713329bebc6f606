#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>

#include "compact/dist/launcher.h"
#include "rank_threads.h"
#include "src/dist/waiting.h"

/// Ranks that are late, do not come, fail, or were never started.
namespace compact::testing {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A rank that comes to nothing: the others find out.
void stay_away(Communicator&) {}

TEST(Patience, ARankThatNeverComesIsNamed) {
  for (int size = 2; size <= 4; ++size) {
    const int missing = size - 1;
    const auto ranks = thread_ranks(size);
    ranks[0]->set_patience({0.3, {}});  // it is the one that hears of all
    const auto start = Clock::now();
    const auto thrown = outcomes(ranks, [&](Communicator& c) {
      if (c.rank() == missing) return stay_away(c);
      double value[] = {1};
      c.sum(value);
    });
    EXPECT_GE(seconds_since(start), 0.3);
    EXPECT_LT(seconds_since(start), 10);
    EXPECT_TRUE(has(told(thrown[0]), "run error: ")) << told(thrown[0]);
    EXPECT_TRUE(has(told(thrown[0]), "rank " + std::to_string(missing))) << told(thrown[0]);
    for (int k = 1; k < missing; ++k)
      EXPECT_EQ(told(thrown[static_cast<std::size_t>(k)]), "said elsewhere: 1");
  }
}

// The queue of tensors has a thread of its own; the rank hears of it in `wait`.
TEST(Patience, ARankThatNeverSendsItsTensorsIsNamed) {
  const auto ranks = thread_ranks(3);
  ranks[1]->set_patience({0.3, {}});
  std::vector<float> memory(3 * 64);
  const auto thrown = outcomes(ranks, [&](Communicator& c) {
    if (c.rank() == 2) return stay_away(c);
    Arena arena(Device::Cpu, 1 << 16);
    Context context(arena);
    c.reserve(context, 4096);
    const Tensor mine(memory.data() + 64 * c.rank(), {64, 1}, DType::F32);
    for (int again = 0; again < 3; ++again) c.all_reduce(context, {&mine, 1});
    EXPECT_THROW(c.wait(context), std::exception);
    c.wait(context);  // what came behind it is gone
    double value[] = {1};
    c.sum(value);
  });
  EXPECT_EQ(told(thrown[0]), "said elsewhere: 1");
  EXPECT_NE(told(thrown[1]), "");
}

TEST(Patience, AnEndThatARankHasSaidEndsTheOthersAtOnce) {
  for (const int code : {1, 2}) {
    const auto ranks = thread_ranks(4);
    const auto start = Clock::now();
    const auto thrown = outcomes(ranks, [&](Communicator& c) {
      if (c.rank() == 2) {
        sleep(0.1);
        c.fail(code, "the card is gone");
      }
      double value[] = {1};
      c.sum(value);
    });
    EXPECT_LT(seconds_since(start), 10);
    for (std::size_t k = 0; k < 4; ++k)
      if (k == 2) {
        EXPECT_EQ(told(thrown[k]), std::string(code == 2 ? "input" : "run") + " error: the card is gone");
      } else {
        EXPECT_EQ(told(thrown[k]), "said elsewhere: " + std::to_string(code));
      }
  }
}

TEST(Patience, EndsWhenItIsOver) {
  double longest = 0;
  const Patience patience{0.05, {}};
  {
    Waiting waiting(patience, longest);
    EXPECT_FALSE(waiting.too_long());
    sleep(0.06);
    EXPECT_TRUE(waiting.too_long());
    EXPECT_GE(waiting.seconds(), 0.06);
  }
  EXPECT_GE(longest, 0.06);
  const double before = longest;
  { Waiting waiting(patience, longest); }
  EXPECT_EQ(longest, before);  // the longest, not the latest
}

// Four ranks' waits at once: so long from the moment they are told to stop, or three times the longest wait.
TEST(Patience, AHurriedRankWaitsLess) {
  const auto seconds_until = [](double longest, double told_after, bool hurried) {
    const auto start = Clock::now();
    const Patience patience{2.4, [&] { return hurried && seconds_since(start) > told_after; }, 1.2};
    Waiting waiting(patience, longest);
    while (!waiting.too_long()) sleep(0.02);
    return seconds_since(start);
  };
  double at_once = 0, later = 0, slow = 0, calm = 0;
  std::thread a([&] { at_once = seconds_until(0, 0, true); }),
      b([&] { later = seconds_until(0, 0.4, true); }), c([&] { slow = seconds_until(0.65, 0, true); }),
      d([&] { calm = seconds_until(0, 0, false); });
  for (std::thread* t : {&a, &b, &c, &d}) t->join();
  EXPECT_NEAR(at_once, 1.2, 0.15);
  EXPECT_NEAR(later, 1.6, 0.15);
  EXPECT_NEAR(slow, 1.95, 0.15);
  EXPECT_NEAR(calm, 2.4, 0.15);
}

TEST(Patience, StandingStillIsCounted) {
  on_ranks(2, [](Communicator& c) {
    if (c.rank() == 1) sleep(0.2);
    double value[] = {1};
    c.sum(value);
    if (c.rank() == 0) {
      EXPECT_GT(c.waited_seconds(), 0.15);
    } else {
      EXPECT_LT(c.waited_seconds(), 0.15);
    }
  });
}

// ---- together --------------------------------------------------------------------------------------------

/// What the ranks of `together` throw, if rank k does `work(k)`.
std::vector<std::string> told_together(int size, const std::function<void(int)>& work) {
  std::vector<std::string> all;
  for (const auto& thrown :
       outcomes(thread_ranks(size), [&](Communicator& c) { together(c, [&] { work(c.rank()); }); }))
    all.push_back(told(thrown));
  return all;
}

TEST(Together, NobodyFails) {
  std::atomic<int> done = 0;
  for (const std::string& text : told_together(4, [&](int) { ++done; })) EXPECT_EQ(text, "");
  EXPECT_EQ(done, 4);
}

TEST(Together, OneFailsAndIsNamed) {
  for (int failing = 0; failing < 3; ++failing) {
    const auto all = told_together(3, [&](int rank) {
      if (rank == failing) throw RunError("the disk is full");
    });
    // What rank 0 alone finds, such as a folder that is taken, it says as a run of one process would.
    if (failing > 0) {
      EXPECT_TRUE(has(all[0], "run error: rank " + std::to_string(failing) + " of 3, on ")) << all[0];
    }
    EXPECT_TRUE(failing > 0 ? all[0].ends_with(": the disk is full")
                            : all[0] == "run error: the disk is full")
        << all[0];
    EXPECT_EQ(all[1], "said elsewhere: 1");
    EXPECT_EQ(all[2], "said elsewhere: 1");
  }
}

TEST(Together, WhatAllSayIsSaidOnceWithoutARank) {
  const auto all = told_together(3, [](int) { input_error("run.json is not there"); });
  EXPECT_EQ(all[0], "input error: run.json is not there");
  EXPECT_EQ(all[1], "said elsewhere: 2");
  EXPECT_EQ(all[2], "said elsewhere: 2");
}

TEST(Together, BadInputIsGraverThanAFailure) {
  const auto all = told_together(4, [](int rank) {
    if (rank == 0) throw RunError("a failure");
    if (rank >= 2) throw InputError("input of " + std::to_string(rank));
  });
  EXPECT_TRUE(has(all[0], "input error: rank 2 of 4, on ")) << all[0];
  EXPECT_TRUE(all[0].ends_with(": input of 2")) << all[0];
  for (std::size_t k = 1; k < 4; ++k) EXPECT_EQ(all[k], "said elsewhere: 2");
}

TEST(Together, OneRankAloneThrowsItsOwn) {
  const auto c = make_local_communicator();
  try {
    together(*c, [] { throw RunError("alone"); });
    FAIL();
  } catch (const KnownToAll<RunError>&) {
    FAIL() << "nobody else knows";
  } catch (const RunError& error) {
    EXPECT_STREQ(error.what(), "alone");
  }
}

TEST(Together, RanksGoOnAfterwards) {
  on_ranks(3, [](Communicator& c) {
    for (int turn = 0; turn < 10; ++turn) {
      bool failed = false;
      try {
        together(c, [&] {
          if (turn % 3 == c.rank()) throw RunError("once");
        });
      } catch (const std::exception&) {
        failed = true;
      }
      EXPECT_TRUE(failed);
      together(c, [] {});
    }
  });
}

TEST(EndTogether, WhatOneRankThrowsEndsAll) {
  const auto ends_with = [](const std::function<void()>& throws) {
    std::vector<std::string> all;
    for (const auto& thrown : outcomes(thread_ranks(3), [&](Communicator& c) {
           end_together(c, [&] {
             if (c.rank() == 1) throws();
             double value[] = {1};
             c.sum(value);
           });
         }))
      all.push_back(told(thrown));
    return all;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(ends_with([] { throw RunError("disk"); }),
            (Texts{"said elsewhere: 1", "run error: disk", "said elsewhere: 1"}));
  EXPECT_EQ(ends_with([] { throw InputError("file"); }),
            (Texts{"said elsewhere: 2", "input error: file", "said elsewhere: 2"}));
  EXPECT_EQ(ends_with([] { bug("a rule"); })[1], "run error: internal error: a rule");
  const Texts memory = ends_with([] { throw std::bad_alloc(); });
  EXPECT_TRUE(has(memory[1], "run error: out of memory")) << memory[1];
  EXPECT_EQ(memory[0], "said elsewhere: 1");
}

TEST(EndTogether, WhatAllKnowIsThrownAsItIs) {
  const auto thrown = outcomes(thread_ranks(3), [](Communicator& c) {
    end_together(c, [&] { together(c, [] { throw InputError("known"); }); });
  });
  EXPECT_EQ(told(thrown[0]), "input error: known");
  EXPECT_THROW(std::rethrow_exception(thrown[0]), KnownToAll<InputError>);
  EXPECT_EQ(told(thrown[1]), "said elsewhere: 2");
  EXPECT_EQ(told(thrown[2]), "said elsewhere: 2");
}

TEST(EndTogether, OneRankAloneThrowsItsOwn) {
  const auto c = make_local_communicator();
  EXPECT_THROW(end_together(*c, [] { throw std::bad_alloc(); }), std::bad_alloc);
}

// ---- the launcher's environment
// ----------------------------------------------------------------------------

class Launcher : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (const char* value = std::getenv(kNames[i])) before_[i] = value;
      unsetenv(kNames[i]);
    }
  }
  void TearDown() override {
    for (std::size_t i = 0; i < kNames.size(); ++i)
      if (before_[i])
        setenv(kNames[i], before_[i]->c_str(), 1);
      else
        unsetenv(kNames[i]);
  }
  static int with(const char* name, const char* value) {
    setenv(name, value, 1);
    const int found = launched_processes();
    unsetenv(name);
    return found;
  }

 private:
  static constexpr std::array kNames = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                        "PMI_RANK", "PMIX_RANK"};
  std::array<std::optional<std::string>, kNames.size()> before_;
};

TEST_F(Launcher, IsReadFromTheEnvironment) {
  EXPECT_EQ(launched_processes(), 1);
  EXPECT_EQ(with("OMPI_COMM_WORLD_SIZE", "4"), 4);
  EXPECT_EQ(with("OMPI_COMM_WORLD_SIZE", "1"), 1);
  EXPECT_EQ(with("OMPI_COMM_WORLD_SIZE", ""), 1);
  EXPECT_EQ(with("PMI_SIZE", "16"), 16);
  EXPECT_EQ(with("SLURM_STEP_NUM_TASKS", "3"), 3);
  EXPECT_EQ(with("PMI_RANK", "0"), 0);  // a launcher that does not say how many
  EXPECT_EQ(with("PMIX_RANK", "1"), 0);
}

TEST_F(Launcher, WithoutOneThereIsOneRank) {
  EXPECT_EQ(open_communicator()->size(), 1);
  EXPECT_FALSE(mpi_version().empty());
  setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  EXPECT_EQ(open_communicator()->size(), 1);
}

}  // namespace
}  // namespace compact::testing
