#include <cmath>

#include "process.h"

/// Whole runs on the emulated CUDA device, beside the same runs on the CPU.
#ifdef COMPACT_EMULATED_BINARY
namespace compact::testing {
namespace {

struct CudaWorkplace : Workplace {
  CudaWorkplace() {
    program = COMPACT_EMULATED_BINARY;
    write_run({{"train", {{"steps", 20}, {"eval_every", 10}}}});
  }
  std::vector<double> losses(const std::string& out) const {
    std::vector<double> all;
    for (const auto& event : events("step", out)) all.push_back(event["loss"].get<double>());
    return all;
  }
};

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "step " << i + 1;
}

struct Settings {
  const char* name;
  const char* arguments;
  double tolerance;  ///< of losses, CPU and CUDA apart by rounding
};

constexpr double kFp32 = 2e-4, kBf16 = 2e-2;
const Settings kSettings[] = {
    {"full_rank", "optimizer.name=adamw optimizer.clip_norm=1.0", kFp32},
    {"compact", "", kFp32},
    {"compact_paper", "memory.preset=paper compact.sharing=per_weight", kFp32},
    {"full_rank_bf16", "precision=bf16 optimizer.name=adamw", kBf16},
    {"compact_bf16", "precision=bf16 memory.preset=tight", kBf16},
    {"compact_bf16_block", "precision=bf16 memory.preset=block optimizer.master_weights=true", kBf16},
    {"all_bf16_per_layer",
     "precision=bf16 optimizer.update=per_layer batch.micro_batch=8 optimizer.state_dtype=bf16 "
     "optimizer.gradient_dtype=bf16",
     kBf16},
    {"orthonormal", "compact.projection=orthonormal compact.moments_at_reseed=transport", kFp32},
    {"hadamard_bf16",
     "precision=bf16 compact.projection=hadamard compact.moments_at_reseed=reset "
     "optimizer.second_moment=per_channel",
     kBf16},
    {"sparse", "compact.projection=sparse", kFp32},
};

class CudaRun : public ::testing::TestWithParam<Settings> {};

// New P come at updates 7 and 14; the resume at 10 lies between.
TEST_P(CudaRun, LearnsAsTheCpuDoesKeepsToItsPlanAndResumesToTheBit) {
  const CudaWorkplace w;
  const std::string run = std::string("train run.json ") + GetParam().arguments;
  const Finished cpu = w.run(run + " train.out_dir=cpu");
  ASSERT_EQ(cpu.code, 0) << cpu.err;
  const Finished whole = w.run(run + " device=cuda");
  ASSERT_EQ(whole.code, 0) << whole.err;
  expect_near(w.losses("out"), w.losses("cpu"), GetParam().tolerance);
  EXPECT_NEAR(w.events("eval").back()["loss"].get<double>(),
              w.events("eval", "cpu").back()["loss"].get<double>(), GetParam().tolerance);
  EXPECT_EQ(w.events("end").back()["measured_peak_bytes"], w.events("end").back()["planned_peak_bytes"]);
  std::map<std::string, std::string> want;
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors", "/state.json"})
    want[file] = contents(w.checkpoints().back() + file);
  std::filesystem::remove_all(w.checkpoints().back());
  ASSERT_TRUE(w.checkpoints().back().ends_with("step_00000010"));
  const Finished resumed = w.run(run + " device=cuda --resume");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  for (const auto& [file, bytes] : want) EXPECT_EQ(contents(w.checkpoints().back() + file), bytes) << file;
}

INSTANTIATE_TEST_SUITE_P(Settings, CudaRun, ::testing::ValuesIn(kSettings),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(CudaCheckpoint, GoesOnOnTheOtherDeviceAndBack) {
  const CudaWorkplace w;
  w.write_run({{"train", {{"keep", 0}}}});
  ASSERT_EQ(w.run("train run.json train.steps=40 train.out_dir=cpu").code, 0);
  const std::string steps[] = {"train.steps=40", "train.steps=40 device=cuda --resume",
                               "train.steps=40 --resume"};
  // The run is stopped after 10 and 30 steps: what comes later is taken away.
  for (int i = 0; i < 3; ++i) {
    const Finished f = w.run("train run.json " + steps[i]);
    ASSERT_EQ(f.code, 0) << f.err;
    if (i == 2) break;
    const std::string last = i == 0 ? "step_00000010" : "step_00000030";
    while (!w.checkpoints().empty() && !w.checkpoints().back().ends_with(last))
      std::filesystem::remove_all(w.checkpoints().back());
    if (w.checkpoints().empty()) GTEST_FAIL() << "no checkpoint " << last;
  }
  expect_near(w.losses("out"), w.losses("cpu"), 1e-3);
}

TEST(CudaGraph, GivesTheBitsOfSingleLaunches) {
  const CudaWorkplace w;
  for (const char* arguments :
       {"train.out_dir=a", "train.out_dir=b cuda.graph=false", "train.out_dir=c cuda.sync_checks=true"}) {
    const Finished f = w.run(std::string("train run.json device=cuda ") + arguments);
    ASSERT_EQ(f.code, 0) << f.err;
  }
  const std::string a = contents(w.checkpoints("a").back() + "/model.safetensors");
  EXPECT_EQ(contents(w.checkpoints("b").back() + "/model.safetensors"), a);
  EXPECT_EQ(contents(w.checkpoints("c").back() + "/model.safetensors"), a);
}

TEST(CudaSkip, AStepThatIsNotFiniteChangesNothingAndTooManyEndTheRun) {
  const CudaWorkplace w;
  const std::string run =
      "train run.json device=cuda optimizer.lr=1e25 schedule.warmup=0 train.steps=30 train.max_skipped=3 ";
  const Finished f = w.run(run);
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("4 steps in a row"), std::string::npos) << f.err;
  EXPECT_EQ(w.events("skip").size(), 4u);
  const Finished cpu = w.run(
      "train run.json optimizer.lr=1e25 schedule.warmup=0 train.steps=30 train.max_skipped=3 "
      "train.out_dir=cpu");
  EXPECT_EQ(cpu.code, 1);
  EXPECT_EQ(w.events("skip", "cpu").size(), w.events("skip").size());
}

TEST(CudaEval, GivesTheLossOfTheCpu) {
  const CudaWorkplace w;
  ASSERT_EQ(w.run("train run.json").code, 0);
  double loss[2];
  for (int i = 0; i < 2; ++i) {
    const Finished f =
        w.run(std::string("eval out --data val.bin --json --device ") + (i == 0 ? "cpu" : "cuda"));
    ASSERT_EQ(f.code, 0) << f.err;
    loss[i] = nlohmann::json::parse(f.out)["loss"].get<double>();
  }
  EXPECT_NEAR(loss[0], loss[1], 1e-5);
}

TEST(CudaRefuses, WhatItCannotDo) {
  const CudaWorkplace w;
  Finished f = w.run("train run.json device=cuda cuda.device=3");
  EXPECT_EQ(f.code, 2);
  EXPECT_NE(f.err.find("cuda.device is 3, but the driver shows 1 CUDA device,"), std::string::npos) << f.err;
  EXPECT_FALSE(std::filesystem::exists(w.path("out")));
  w.write("model.json",
          R"({"model_type": "llama", "hidden_act": "silu", "hidden_size": 520, "intermediate_size": 88,
      "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 64,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "initializer_range": 0.02})");
  f = w.run("train run.json device=cuda");
  EXPECT_EQ(f.code, 2);
  EXPECT_NE(f.err.find("heads are 520 wide"), std::string::npos) << f.err;
}

// The program with the real backend, where there is no driver.
TEST(CudaDriver, IsMissedWithASentence) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a driver";
  const Workplace w;
  const Finished f = w.run("train run.json device=cuda");
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("no NVIDIA driver"), std::string::npos) << f.err;
  EXPECT_FALSE(std::filesystem::exists(w.path("out")));
}

}  // namespace
}  // namespace compact::testing
#endif
