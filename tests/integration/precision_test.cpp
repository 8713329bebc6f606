#include <cmath>

#include "process.h"

/// bf16, projections and moments through the whole program: resume to the bit, other precisions, checkpoints.
namespace compact::testing {
namespace {

struct Settings {
  const char* name;
  const char* arguments;
};

const Settings kSettings[] = {
    {"bf16", "precision=bf16"},
    {"bf16_nearest", "precision=bf16 optimizer.rounding=nearest optimizer.name=adamw"},
    {"bf16_master", "precision=bf16 optimizer.master_weights=true"},
    {"bf16_all",
     "precision=bf16 optimizer.state_dtype=bf16 optimizer.gradient_dtype=bf16 optimizer.name=adamw"},
    {"bf16_per_layer", "precision=bf16 optimizer.update=per_layer batch.micro_batch=8"},
    {"orthonormal", "compact.projection=orthonormal compact.moments_at_reseed=transport"},
    {"hadamard",
     "compact.projection=hadamard compact.moments_at_reseed=reset optimizer.second_moment=per_channel"},
    {"sparse", "compact.projection=sparse optimizer.state_dtype=bf16"},
};

class Precision : public ::testing::TestWithParam<Settings> {};

// The new P of update 7 and 14, and the resume at 10, lie between: everything must go on to the bit.
TEST_P(Precision, ResumesToTheBitAndKeepsToItsPlan) {
  const Workplace w;
  w.write_run({{"train", {{"steps", 20}, {"eval_every", 0}}}});
  const std::string run = std::string("train run.json ") + GetParam().arguments;
  const Finished whole = w.run(run);
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(w.events("end").back()["measured_peak_bytes"], w.events("end").back()["planned_peak_bytes"]);
  EXPECT_LT(w.events("step").back()["loss"].get<double>(), w.events("step").front()["loss"].get<double>());
  std::map<std::string, std::string> want;
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors", "/state.json"})
    want[file] = contents(w.checkpoints().back() + file);
  std::filesystem::remove_all(w.checkpoints().back());
  ASSERT_TRUE(w.checkpoints().back().ends_with("step_00000010"));
  const Finished resumed = w.run(run + " --resume");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  for (const auto& [file, bytes] : want) EXPECT_EQ(contents(w.checkpoints().back() + file), bytes) << file;
}

INSTANTIATE_TEST_SUITE_P(Runs, Precision, ::testing::ValuesIn(kSettings),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Bf16, CheckpointsAreInTheRunsPrecisionAndStartRunsInAnother) {
  const Workplace w;
  w.write_run({{"train", {{"steps", 20}}}, {"precision", "bf16"}});
  ASSERT_EQ(w.run("train run.json").code, 0);
  const std::string folder = w.checkpoints().back();
  EXPECT_EQ(nlohmann::json::parse(contents(folder + "/config.json"))["torch_dtype"], "bfloat16");
  const std::string weights = contents(folder + "/model.safetensors");
  EXPECT_NE(weights.find("\"BF16\""), std::string::npos);
  EXPECT_EQ(weights.substr(0, 4000).find("\"F32\""), std::string::npos);

  // eval computes in the checkpoint's precision, so it gives the loss of the run's own evaluation.
  const Finished eval = w.run("eval out --data val.bin --json");
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_NEAR(nlohmann::json::parse(eval.out)["loss"].get<double>(),
              w.events("eval").back()["loss"].get<double>(), 1e-4);

  const Finished resumed = w.run("train run.json --resume precision=fp32 train.steps=30");
  EXPECT_EQ(resumed.code, 2);
  EXPECT_NE(resumed.err.find("precision"), std::string::npos) << resumed.err;
  EXPECT_NE(resumed.err.find("init_from"), std::string::npos) << resumed.err;
  // Both ways between the precisions, with and without masters: the loss goes on from where it was.
  const double last = w.events("eval").back()["loss"].get<double>();
  for (const char* next : {"precision=fp32 train.out_dir=a", "precision=bf16 train.out_dir=b",
                           "precision=bf16 optimizer.master_weights=true train.out_dir=c"}) {
    const Finished f = w.run(std::string("train run.json model= init_from=out optimizer.lr=1e-5 ") + next);
    ASSERT_EQ(f.code, 0) << f.err;
    const std::string out = std::string(next).substr(std::string(next).size() - 1);
    EXPECT_NEAR(w.events("eval", out).back()["loss"].get<double>(), last, 0.02 * last) << next;
  }
  const Finished back = w.run("train run.json model= init_from=a precision=bf16 train.out_dir=d");
  EXPECT_EQ(back.code, 0) << back.err;
}

TEST(Bf16, ACpuWithoutItsInstructionsSaysSoAndAgrees) {
  const Workplace w;
  const std::string run = "train run.json precision=bf16 train.steps=10 train.eval_every=0";
  const Finished slow = w.run(run + " train.out_dir=slow", "COMPACT_ISA=avx2");
  ASSERT_EQ(slow.code, 0) << slow.err;
  EXPECT_NE(slow.out.find("no bf16 instructions"), std::string::npos) << slow.out;
  EXPECT_EQ(w.events("end", "slow").back()["measured_peak_bytes"],
            w.events("end", "slow").back()["planned_peak_bytes"]);
  ASSERT_EQ(w.run(run).code, 0);
  const auto a = w.events("step"), b = w.events("step", "slow");
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), 5e-3);
}

TEST(PerLayer, RefusesWhatItCannotDoAndEndsANonFiniteRun) {
  const Workplace w;
  const std::string run = "train run.json optimizer.update=per_layer ";
  const Finished clip = w.run(run + "batch.micro_batch=8 optimizer.clip_norm=1");
  EXPECT_EQ(clip.code, 2);
  EXPECT_NE(clip.err.find("clip_norm"), std::string::npos) << clip.err;
  const Finished micro = w.run(run);
  EXPECT_EQ(micro.code, 2);
  EXPECT_NE(micro.err.find("batch.micro_batch to 8"), std::string::npos) << micro.err;

  ASSERT_EQ(w.run(run + "batch.micro_batch=8 train.steps=10").code, 0);
  const Finished diverged =
      w.run(run +
            "batch.micro_batch=8 train.out_dir=bad optimizer.lr=1e30 schedule.warmup=0 train.steps=10 "
            "train.checkpoint_every=1");
  EXPECT_EQ(diverged.code, 1);
  EXPECT_NE(diverged.err.find("not finite"), std::string::npos) << diverged.err;
  ASSERT_FALSE(w.checkpoints("bad").empty());
}

TEST(Bf16, RefusesBf16GradientsOfFp32Products) {
  const Workplace w;
  const Finished f = w.run("train run.json optimizer.gradient_dtype=bf16");
  EXPECT_EQ(f.code, 2);
  EXPECT_NE(f.err.find("optimizer.gradient_dtype"), std::string::npos) << f.err;
}

}  // namespace
}  // namespace compact::testing
