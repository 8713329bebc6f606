#include "compact/core/error.h"
#include "compact/train/trainer.h"
#include "mpi_testing.h"

/// `mpirun -np N compact train`: the same run at any number of ranks, as processes and as threads.
namespace compact::testing {
namespace {

// Ranks add gradients in another order than one process, so losses differ by fp32 rounding that grows over
// the steps.
constexpr double kRounding = 1e-3;

/// Optimizer, and whether it is sharded.
class Ranks : public MpiTest, public ::testing::WithParamInterface<std::pair<std::string, bool>> {
 protected:
  nlohmann::json settings() const {
    nlohmann::json run = {{"optimizer", {{"name", GetParam().first}}},
                          {"dist", {{"shard_optimizer", GetParam().second}}}};
    if (GetParam().first == "adamw") run["compact"] = nullptr;
    return run;
  }
};

TEST_P(Ranks, LossesOfOneProcessAndBitsOfThreads) {
  const RanksPlace w;
  w.write_shared(settings());
  ASSERT_EQ(w.run("train run.json train.out_dir=one").code, 0);
  for (int ranks : {1, 2, 3, 4}) {
    const std::string processes = "processes" + std::to_string(ranks),
                      threads = "threads" + std::to_string(ranks);
    const Finished f = w.run_ranks(ranks, "train run.json train.out_dir=" + processes);
    ASSERT_EQ(f.code, 0) << f.err;
    expect_same_steps(w, "one", processes, 60, ranks == 1 ? 0 : kRounding);
    EXPECT_NEAR(w.events("eval", "one").back()["loss"].get<double>(),
                w.events("eval", processes).back()["loss"].get<double>(), kRounding);
    if (ranks == 1) {
      expect_same_end(w, "one", processes);
      continue;
    }
    train_in_threads(w, ranks, {"train.out_dir=" + w.path(threads)});
    expect_same_steps(w, processes, threads, 60, 0);
    expect_same_end(w, processes, threads);
  }
}

// Checkpoints know nothing of ranks.
TEST_P(Ranks, SavedAtTwoResumedAtThreeAndAtOne) {
  const RanksPlace w;
  nlohmann::json run = settings();
  run["train"]["checkpoint_every"] = 20;
  w.write_shared(run);
  ASSERT_EQ(w.run("train run.json train.out_dir=one").code, 0);
  ASSERT_EQ(w.run_ranks(2, "train run.json").code, 0);
  ASSERT_EQ(w.checkpoints().size(), 3u);
  for (int k : {1, 2}) std::filesystem::remove_all(w.checkpoints()[static_cast<std::size_t>(3 - k)]);
  const Finished three = w.run_ranks(3, "train run.json --resume");
  ASSERT_EQ(three.code, 0) << three.err;
  EXPECT_NE(three.out.find("resumed from"), std::string::npos) << three.out;
  expect_same_steps(w, "one", "out", 60, kRounding);
  std::filesystem::remove_all(w.checkpoints().back());
  const Finished one = w.run("train run.json --resume");
  ASSERT_EQ(one.code, 0) << one.err;
  expect_same_steps(w, "one", "out", 60, kRounding);
}

TEST_P(Ranks, OneIsKilledAtRandomMoments) {
  const RanksPlace w;
  nlohmann::json run = settings();
  run["train"] = {{"steps", 40}, {"checkpoint_every", 3}};
  w.write_slow(run);
  const int ranks = GetParam().second ? 3 : 2;
  ASSERT_EQ(w.run_ranks(ranks, "train run.json train.out_dir=whole").code, 0);
  std::mt19937 generator(std::random_device{}());
  int killed = 0;
  for (int attempt = 0; attempt < 10 && killed < 3 && w.events("end").empty(); ++attempt) {
    const bool resume = !w.checkpoints().empty();
    if (!resume) std::filesystem::remove_all(w.path("out"));
    const pid_t mpirun =
        w.start_ranks(ranks, std::string("train run.json") + (resume ? " --resume" : ""), grace(0));
    const std::size_t before = w.events("start").size(),
                      steps = resume ? w.events("step").size() + generator() % 4 : 2 + generator() % 8;
    // A resumed run cuts the metrics first, so the number of steps alone says nothing.
    ASSERT_TRUE(wait_until([&] { return ranks_of(mpirun).size() == static_cast<std::size_t>(ranks); }));
    wait_until([&] {
      return (w.events("start").size() > before && w.events("step").size() >= steps) ||
             !w.events("end").empty();
    });
    std::this_thread::sleep_for(std::chrono::microseconds(generator() % 50000));
    const auto victims = ranks_of(mpirun);
    if (const auto victim = victims.find(static_cast<int>(generator()) & 1); victim != victims.end())
      kill(victim->second, SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    const Finished f = w.wait(mpirun);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    for (const auto& [rank, process] : victims)
      EXPECT_TRUE(wait_until([p = process] { return has_ended(p); })) << "rank " << rank << " lives on";
    if (!w.events("end").empty()) continue;  // it was done before
    EXPECT_NE(f.code, 0) << f.err;
    killed += 1;
    expect_whole_checkpoints(w);
  }
  EXPECT_GE(killed, 1);
  if (w.events("end").empty()) {
    const Finished last =
        w.run_ranks(ranks, std::string("train run.json") + (w.checkpoints().empty() ? "" : " --resume"));
    ASSERT_EQ(last.code, 0) << last.err;
  }
  expect_same_steps(w, "whole", "out", 40, 0);
  expect_same_end(w, "whole", "out");
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Ranks,
                         ::testing::Values(std::pair("adamw", false), std::pair("compact", false),
                                           std::pair("adamw", true), std::pair("compact", true)),
                         [](const auto& instance) {
                           return instance.param.first + (instance.param.second ? "_sharded" : "_whole");
                         });

using MpiRun = MpiTest;

TEST_F(MpiRun, SaysEverythingOnceAndPlainly) {
  const RanksPlace w;
  const Finished f = w.run_ranks(3, "train run.json");
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.out.find_first_of("\r\x1b"), std::string::npos) << f.out;
  EXPECT_EQ(f.err, "");
  for (const char* once :
       {"compact 0", "3 ranks (3 on this machine), 4 sequences", "step 1/60", "step 60/60",
        "step 20: validation", "checkpoint out/checkpoints/step_00000010", "finished 60 steps"})
    EXPECT_EQ(count_of(f.out, once), 1u) << once << "\n" << f.out;
  const auto start = w.events("start").back();
  EXPECT_EQ(start["ranks"], 3);
  EXPECT_NE(start["mpi"].get<std::string>().find("Open MPI"), std::string::npos);
  const auto step = w.events("step").back();
  EXPECT_TRUE(step["ranks_waited_ms"].is_number());
  // What the plan said goes over the wire did.
  const Finished plan = w.run_ranks(3, "train run.json train.out_dir=other --dry-run");
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_EQ(count_of(plan.out, "one of 3 ranks: sends"), 1u) << plan.out;
  EXPECT_EQ(count_of(plan.out, "this run"), 1u) << plan.out;
  EXPECT_FALSE(std::filesystem::exists(w.path("other")));
  const std::size_t at = plan.out.find("one of 3 ranks: sends") + 21;
  EXPECT_NEAR(std::atof(plan.out.c_str() + at) * 1024, step["wire_bytes"].get<double>(), 60) << plan.out;
}

// No launcher, or one that has started one process: nothing of MPI.
TEST(OneRank, StartsNoMpi) {
  const Workplace w;
  ASSERT_EQ(w.run("train run.json train.out_dir=plain").code, 0);
  const Finished f = w.run("train run.json", "OMPI_COMM_WORLD_SIZE=1");
  ASSERT_EQ(f.code, 0) << f.err;
  for (const char* out : {"plain", "out"}) {
    EXPECT_EQ(w.events("start", out).back()["ranks"], 1);
    EXPECT_FALSE(w.events("start", out).back().contains("mpi"));
    EXPECT_FALSE(w.events("step", out).back().contains("wire_bytes"));
  }
  expect_same_end(w, "plain", "out");
}

// Every process would make the same run otherwise.
TEST(OneRank, LauncherOfAnotherMpi) {
  const Workplace w;
  const Finished f = w.run("train run.json", "PMI_SIZE=2");
  expect_one_error(f, 2, {"launcher has started 2 processes"});
  EXPECT_FALSE(std::filesystem::exists(w.path("out")));
}

}  // namespace
}  // namespace compact::testing
