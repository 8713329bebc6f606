#include <random>

#include "process.h"

/// Killed, interrupted, out of disk: nothing is lost, and a resumed run ends bit for bit like an undisturbed
/// one.
namespace compact::testing {
namespace {

// The files that say where a run ended up.
void expect_same_end(const Workplace& w, const std::string& a, const std::string& b) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string name = std::string("/checkpoints/step_00000060/") + file;
    EXPECT_TRUE(contents(w.path(a + name)) == contents(w.path(b + name))) << file << " of " << b;
    EXPECT_FALSE(contents(w.path(b + name)).empty()) << file;
  }
}

class Interruption : public ::testing::TestWithParam<std::string> {};

TEST_P(Interruption, KilledAtRandomMomentsAndResumed) {
  const Workplace w;
  w.write_run({{"optimizer", {{"name", GetParam()}}},
               {"batch", {{"tokens_per_step", 1024}}},
               {"train", {{"checkpoint_every", 3}}}});
  ASSERT_EQ(w.run("train run.json train.out_dir=whole").code, 0);
  std::mt19937 generator(std::random_device{}());
  int killed = 0;
  for (int attempt = 0; attempt < 40 && w.events("end").empty(); ++attempt) {
    const bool resume = !w.checkpoints().empty();
    if (!resume) std::filesystem::remove_all(w.path("out"));
    const pid_t child = w.start(std::string("train run.json") + (resume ? " --resume" : ""));
    // Some steps on and then a little later, so that steps, evaluations and half-written checkpoints are all
    // hit.
    const std::size_t steps = w.events("step").size() + 1 + generator() % 9;
    wait_until([&] { return w.events("step").size() >= steps || !w.events("end").empty(); });
    std::this_thread::sleep_for(std::chrono::microseconds(generator() % 20000));
    kill(child, SIGKILL);
    killed += w.wait(child).code == 128 + SIGKILL;
  }
  if (w.events("end").empty()) {
    const Finished last = w.run(std::string("train run.json") + (w.checkpoints().empty() ? "" : " --resume"));
    ASSERT_EQ(last.code, 0) << last.err;
  }
  EXPECT_GE(killed, 3);
  expect_same_end(w, "whole", "out");
  const auto whole = w.events("step", "whole"), resumed = w.events("step");
  ASSERT_EQ(whole.size(), 60u);
  ASSERT_EQ(resumed.size(), 60u);
  for (std::size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(whole[i]["step"], resumed[i]["step"]);
    EXPECT_EQ(whole[i]["loss"], resumed[i]["loss"]);
  }
}

// The moment is chosen by the .tmp folder itself, so the kill falls into the writing of a checkpoint.
TEST_P(Interruption, KilledWhileACheckpointIsWritten) {
  const Workplace w;
  w.write_run({{"optimizer", {{"name", GetParam()}}}, {"train", {{"checkpoint_every", 2}}}});
  ASSERT_EQ(w.run("train run.json train.out_dir=whole").code, 0);
  const pid_t child = w.start("train run.json");
  ASSERT_TRUE(wait_until([&] {
    std::error_code ignored;
    if (w.checkpoints().size() < 2) return false;
    for (const auto& entry : std::filesystem::directory_iterator(w.path("out/checkpoints"), ignored))
      if (entry.path().extension() == ".tmp") return true;
    return w.events("end").size() == 1;
  }));
  kill(child, SIGKILL);
  w.wait(child);
  const Finished resumed = w.run("train run.json --resume");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_same_end(w, "whole", "out");
  for (const auto& entry : std::filesystem::directory_iterator(w.path("out/checkpoints")))
    EXPECT_NE(entry.path().extension(), ".tmp");
}

TEST_P(Interruption, StopsAtASignalAndGoesOn) {
  for (int signal : {SIGINT, SIGTERM}) {
    const Workplace w;
    w.write_run({{"optimizer", {{"name", GetParam()}}}, {"train", {{"checkpoint_every", 0}}}});
    ASSERT_EQ(w.run("train run.json train.out_dir=whole").code, 0);
    const pid_t child = w.start("train run.json");
    ASSERT_TRUE(wait_until([&] { return w.events("step").size() >= 3; }));
    kill(child, signal);
    const Finished stopped = w.wait(child);
    EXPECT_EQ(stopped.code, 0) << stopped.err;
    if (w.events("step").size() < 60) {
      EXPECT_NE(stopped.out.find("--resume"), std::string::npos) << stopped.out;
    }
    ASSERT_EQ(w.checkpoints().size(), 1u);
    const Finished resumed = w.run("train run.json --resume");
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    expect_same_end(w, "whole", "out");
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Interruption, ::testing::Values("adamw", "compact"));

TEST(Signals, Usr1WritesACheckpointAndTheRunGoesOn) {
  const Workplace w;
  w.write_run({{"train", {{"checkpoint_every", 0}, {"steps", 400}, {"eval_every", 0}, {"keep", 0}}}});
  const pid_t child = w.start("train run.json");
  ASSERT_TRUE(wait_until([&] { return w.events("step").size() >= 3; }));
  kill(child, SIGUSR1);
  EXPECT_EQ(w.wait(child).code, 0);
  EXPECT_EQ(w.events("step").size(), 400u);
  EXPECT_EQ(w.checkpoints().size(), 2u);
}

TEST(Disk, FullWhileACheckpointIsWritten) {
  const Workplace w;
  // The first checkpoints fit under the limit on file sizes; the limit then falls for the resumed run.
  w.write_run({{"train", {{"steps", 20}}}});
  ASSERT_EQ(w.run("train run.json").code, 0);
  const auto before = w.checkpoints();
  ASSERT_FALSE(before.empty());
  const std::string weights = contents(before.back() + "/model.safetensors");
  w.write_run({{"train", {{"steps", 40}}}});
  const Finished full = w.run("train run.json --resume", "ulimit -f 64;");
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("model.safetensors"), std::string::npos) << full.err;
  EXPECT_EQ(w.checkpoints(), before);
  EXPECT_EQ(contents(before.back() + "/model.safetensors"), weights);
  const Finished resumed = w.run("train run.json --resume");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("schedule"), std::string::npos) << "a longer run says what its schedule is now";
}

TEST(Disk, FolderThatCannotBeWritten) {
  const Workplace w;
  const Finished f = w.run("train run.json train.out_dir=/proc/compact_run");
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("/proc/compact_run"), std::string::npos) << f.err;
}

}  // namespace
}  // namespace compact::testing
