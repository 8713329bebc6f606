#include <sys/resource.h>

#include "mpi_testing.h"

/// Ranks that hang, are told to stop, disagree, or fail: all end together, with one message and the
/// checkpoints whole.
namespace compact::testing {
namespace {

using Clock = std::chrono::steady_clock;

using MpiFailure = MpiTest;

TEST_F(MpiFailure, AHangingRankIsNamedAndAllEnd) {
  const RanksPlace w;
  w.write_slow({{"dist", {{"timeout_seconds", 3}}}, {"train", {{"steps", 100000}, {"checkpoint_every", 5}}}});
  const pid_t mpirun = w.start_ranks(4, "train run.json");
  ASSERT_TRUE(w.reaches(8));
  const auto ranks = ranks_of(mpirun);
  ASSERT_EQ(ranks.size(), 4u);
  kill(ranks.at(2), SIGSTOP);
  const auto start = Clock::now();
  const Finished f = w.wait(mpirun);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(15));
  expect_one_error(f, 1, {"rank 2 has not answered for 3 seconds", "dist.timeout_seconds"});
  for (const auto& [rank, process] : ranks)
    EXPECT_TRUE(wait_until([p = process] { return has_ended(p); })) << "rank " << rank << " lives on";
  EXPECT_FALSE(w.checkpoints().empty());
  expect_whole_checkpoints(w);
}

TEST_F(MpiFailure, LossesThatAreNotFiniteAreCountedOnceForAll) {
  const RanksPlace w;
  const Finished f = w.run_ranks(
      2, "train run.json optimizer.lr=1e30 schedule.warmup=0 train.max_skipped=4 train.checkpoint_every=50");
  expect_one_error(f, 1, {"in 5 steps in a row", "train.max_skipped is 4", "no checkpoint yet"});
  EXPECT_EQ(w.events("skip").size(), 5u);
  EXPECT_EQ(w.events("step").size(), 1u);
}

TEST_F(MpiFailure, Usr1ToTheLauncherSavesAndTheRunGoesOn) {
  const RanksPlace w;
  w.write_slow({{"train", {{"checkpoint_every", 0}, {"eval_every", 0}, {"steps", 40}, {"keep", 0}}}});
  const pid_t mpirun = w.start_ranks(2, "train run.json");
  ASSERT_TRUE(w.reaches(3));
  kill(mpirun, SIGUSR1);
  const Finished f = w.wait(mpirun);
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(w.events("step").size(), 40u);
  EXPECT_EQ(w.checkpoints().size(), 2u) << "one for the signal, one for the end";
  expect_whole_checkpoints(w);
}

// The launcher ends with 1 whatever its ranks do; it passes the signal on after its grace, and kills after as
// long again.
TEST_F(MpiFailure, SignalsThatEndTheLauncherLeaveACheckpoint) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const RanksPlace w;
    w.write_slow({{"train", {{"checkpoint_every", 0}, {"eval_every", 0}, {"steps", 100000}}}});
    const pid_t mpirun = w.start_ranks(2, "train run.json", grace(2));
    ASSERT_TRUE(w.reaches(3));
    kill(mpirun, signal);
    const Finished f = w.wait(mpirun);
    EXPECT_EQ(f.code, 1) << f.err;
    EXPECT_EQ(count_of(f.out, "stopped by a signal"), 1u) << f.out << f.err;
    EXPECT_EQ(count_of(f.err, "compact: "), 0u) << f.err;
    EXPECT_EQ(w.checkpoints().size(), 1u);
    expect_whole_checkpoints(w);
  }
}

// The signal that the launcher passes on and does not take for itself.
TEST_F(MpiFailure, Usr2ToTheLauncherSavesAndEnds) {
  const RanksPlace w;
  w.write_slow({{"train", {{"checkpoint_every", 0}, {"eval_every", 0}, {"steps", 100000}}}});
  const pid_t mpirun = w.start_ranks(2, "train run.json");
  ASSERT_TRUE(w.reaches(3));
  kill(mpirun, SIGUSR2);
  const Finished f = w.wait(mpirun);
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(count_of(f.out, "stopped by a signal"), 1u) << f.out << f.err;
  EXPECT_EQ(w.checkpoints().size(), 1u);
  expect_whole_checkpoints(w);
}

// One rank hears of the end, all stop.
TEST_F(MpiFailure, ASignalToOneRankStopsAllAndLosesNothing) {
  const RanksPlace w;
  w.write_slow({{"train", {{"steps", 40}, {"checkpoint_every", 0}}}});
  ASSERT_EQ(w.run_ranks(2, "train run.json train.out_dir=whole").code, 0);
  const pid_t mpirun = w.start_ranks(2, "train run.json");
  ASSERT_TRUE(w.reaches(3));
  kill(ranks_of(mpirun).at(1), SIGTERM);
  const Finished f = w.wait(mpirun);
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(count_of(f.out, "stopped by a signal"), 1u) << f.out;
  ASSERT_EQ(w.checkpoints().size(), 1u);
  const Finished resumed = w.run_ranks(2, "train run.json --resume");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_same_steps(w, "whole", "out", 40, 0);
  expect_same_end(w, "whole", "out");
}

// As soon as one rank has ended with an error the launcher may kill the others: with no grace, at once. The
// message must be out by then.
TEST_F(MpiFailure, MistakesAreToldOnceBeforeTheFirstStep) {
  const RanksPlace w;
  struct Mistake {
    int ranks;
    std::string arguments;
    std::vector<std::string> words;
  };
  for (const Mistake& m : std::vector<Mistake>{
           {4, "optimizer.lr=-1", {"optimizer.lr is -1"}},
           {4, "--resume", {"--resume"}},
           {3, "batch.tokens_per_step=128", {"3 ranks", "96", "144"}},
           {2, "batch.micro_batch=4", {"batch.micro_batch is 4", "6 sequences", "2 ranks", "3 or 6"}},
           {4, "data.train=nothing*.bin", {"data.train", "nothing*.bin"}},
           {2, "train.out_dir=/proc/run", {"/proc/run"}}}) {
    const Finished f = w.run_ranks(m.ranks, "train run.json " + m.arguments, grace(0));
    expect_one_error(f, m.arguments.find("/proc") == std::string::npos ? 2 : 1, m.words);
    EXPECT_EQ(f.out, "") << m.arguments;
  }
  EXPECT_FALSE(std::filesystem::exists(w.path("out")));
  ASSERT_EQ(w.run_ranks(2, "train run.json train.steps=10").code, 0);
  expect_one_error(w.run_ranks(2, "train run.json train.steps=10", grace(0)), 2,
                   {"\"out\" holds a run already", "--resume"});
}

/// What ranks that are started differently are told.
TEST_F(MpiFailure, RanksThatSeeDifferentThings) {
  const RanksPlace w;
  std::filesystem::create_directory(w.path("far"));
  const std::string out = " train.out_dir=" + w.path("out");
  // Two ranks of the same words, the second in the folder "far" of another machine, so to speak.
  const auto apart = [&](const std::string& changes) {
    return w.wait(w.start_words(w.mpirun(1, "train run.json" + out, grace(0)) + " : -np 1 --wdir " +
                                w.path("far") + " " + w.program + " train run.json" + out + changes));
  };
  const auto reset = [&] {
    for (const char* file : {"run.json", "model.json", "train.bin", "val.bin"})
      std::filesystem::copy_file(w.path(file), w.path(std::string("far/") + file),
                                 std::filesystem::copy_options::overwrite_existing);
  };
  reset();
  expect_one_error(apart(" optimizer.lr=0.5"), 2, {"optimizer.lr is 0.01 on rank 0 and 0.5 on rank 1"});
  // The same number of tokens, one of them another.
  std::string tokens = contents(w.path("train.bin"));
  tokens[2000] = static_cast<char>(tokens[2000] ^ 1);
  w.write("far/train.bin", tokens);
  expect_one_error(apart(""), 2, {"different data", "train.bin", "rank 1"});
  std::filesystem::remove(w.path("far/train.bin"));
  expect_one_error(apart(""), 2, {"rank 1 of 2", "data.train", "train.bin"});
  reset();
  nlohmann::json model = nlohmann::json::parse(contents(w.path("model.json")));
  model["intermediate_size"] = 80;
  w.write("far/model.json", model.dump());
  expect_one_error(
      apart(""), 2,
      {"model.json", "\"intermediate_size\": 88 on rank 0", "\"intermediate_size\": 80 on rank 1"});
  reset();
  std::filesystem::remove(w.path("far/run.json"));
  expect_one_error(apart(""), 2, {"rank 1 of 2", "cannot open run.json"});
  EXPECT_FALSE(std::filesystem::exists(w.path("out")));
  // The threads may differ.
  reset();
  const Finished fine = apart(" threads=2 train.steps=60");
  EXPECT_EQ(fine.code, 0) << fine.err;
}

TEST_F(MpiFailure, FullDiskWhileACheckpointIsWritten) {
  for (const bool sharded : {false, true}) {
    const RanksPlace w;
    w.write_slow({{"dist", {{"shard_optimizer", sharded}}}});
    const pid_t mpirun = w.start_ranks(2, "train run.json");
    // The limit falls once MPI has made its files.
    ASSERT_TRUE(wait_until([&] { return !w.events("checkpoint").empty(); }));
    const rlimit limit{65536, 65536};
    const auto ranks = ranks_of(mpirun);
    ASSERT_EQ(ranks.size(), 2u);
    ASSERT_EQ(prlimit(ranks.at(0), RLIMIT_FSIZE, &limit, nullptr), 0);
    const auto before = w.checkpoints();
    const Finished full = w.wait(mpirun);
    expect_one_error(full, 1, {"model.safetensors"});
    EXPECT_EQ(w.checkpoints(), before);
    EXPECT_LT(w.events("step").size(), 60u);
    expect_whole_checkpoints(w);
  }
}

TEST_F(MpiFailure, TwoRunsInOneFolder) {
  const RanksPlace w;
  w.write_slow({{"train", {{"steps", 100000}, {"checkpoint_every", 5}, {"eval_every", 0}}}});
  const pid_t first = w.start_ranks(2, "train run.json");
  ASSERT_TRUE(wait_until([&] { return !w.checkpoints().empty(); }));
  // Its own output would be written over.
  const std::string second =
      w.mpirun(2, "train run.json --resume", grace(0)) + " 2> second.txt > /dev/null; exit $?";
  const int status = std::system(("cd " + w.path("") + " && (" + second + ")").c_str());
  const Finished refused{WEXITSTATUS(status), "", contents(w.path("second.txt"))};
  expect_one_error(refused, 2, {"another compact process", "out"});
  EXPECT_TRUE(w.reaches(w.events("step").size() + 1)) << "the first run was disturbed";
  kill(ranks_of(first).at(0), SIGTERM);
  const Finished f = w.wait(first);
  EXPECT_EQ(f.code, 0) << f.err;
}

}  // namespace
}  // namespace compact::testing
