#include <cmath>

#include "compact/data/token_shard.h"
#include "compact/io/file.h"
#include "process.h"

/// The commands on a small run: what they print and write, and how much memory the process takes.
namespace compact::testing {
namespace {

TEST(Run, LearnsEvaluatesAndAgreesWithItsPlan) {
  const Workplace w;
  const Finished plan = w.run("plan run.json --json");
  ASSERT_EQ(plan.code, 0) << plan.err;
  ASSERT_EQ(w.run("train run.json").code, 0);
  const auto steps = w.events("step"), evals = w.events("eval"), starts = w.events("start"),
             ends = w.events("end");
  ASSERT_EQ(steps.size(), 60u);
  EXPECT_LT(steps.back()["loss"].get<double>(), 0.9 * steps.front()["loss"].get<double>());
  for (const char* key :
       {"step", "tokens", "loss", "lr", "grad_norm", "step_ms", "tokens_per_second", "memory"})
    EXPECT_TRUE(steps.back().contains(key)) << key;
  EXPECT_TRUE(steps.front()["flops_fraction"].is_null());
  EXPECT_TRUE(steps.back()["flops_fraction"].is_number());
  ASSERT_EQ(evals.size(), 3u);
  EXPECT_NEAR(std::exp(evals.back()["loss"].get<double>()), evals.back()["perplexity"].get<double>(), 1e-6);
  const std::int64_t planned = nlohmann::json::parse(plan.out)["peak_bytes"];
  EXPECT_EQ(steps.back()["memory"]["total"], planned);
  EXPECT_EQ(starts.back()["plan"]["total"], planned);
  EXPECT_EQ(ends.back()["measured_peak_bytes"], planned);
  EXPECT_EQ(ends.back()["planned_peak_bytes"], planned);

  // eval of the checkpoint gives the loss of the last evaluation.
  const Finished eval = w.run("eval out --data val.bin --json");
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_NEAR(nlohmann::json::parse(eval.out)["loss"].get<double>(), evals.back()["loss"].get<double>(),
              1e-5);
}

// A model whose arena is a few hundred MiB: the process grows by no more than that and 5 %.
TEST(Run, ResidentMemoryIsThePlan) {
  const Workplace w;
  nlohmann::json model = nlohmann::json::parse(contents(w.path("model.json")));
  model["hidden_size"] = 512;
  model["intermediate_size"] = 1376;
  model["num_hidden_layers"] = 4;
  model["vocab_size"] = 8000;
  w.write("model.json", model.dump());
  for (const char* optimizer : {"adamw", "compact"}) {
    w.write_run({{"data", {{"sequence_length", 64}}},
                 {"batch", {{"tokens_per_step", 1024}, {"micro_batch", 8}}},
                 {"optimizer", {{"name", optimizer}}},
                 {"train", {{"steps", 2}, {"out_dir", optimizer}}}});
    const Finished f = w.run("train run.json");
    ASSERT_EQ(f.code, 0) << f.err;
    const auto end = w.events("end", optimizer).back();
    const double planned = end["planned_peak_bytes"], grown = end["resident_bytes_over_start"];
    EXPECT_GT(planned, 100e6);
    EXPECT_LE(std::abs(grown - planned), std::max(0.05 * planned, 64.0 * (1 << 20))) << optimizer;
  }
}

TEST(Run, EveryEventAfterTheCheckpointIsCutOnResume) {
  const Workplace w;
  w.write_run({{"train", {{"steps", 20}}}});
  ASSERT_EQ(w.run("train run.json").code, 0);
  std::filesystem::remove_all(w.checkpoints().back());  // as if it had been killed before step 20
  std::ofstream(w.path("out/metrics.jsonl"), std::ios::app) << "{\"event\":\"ste";
  ASSERT_EQ(w.run("train run.json --resume").code, 0);
  const auto steps = w.events("step");
  ASSERT_EQ(steps.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(steps[i]["step"], i + 1);
  EXPECT_EQ(w.events("end").size(), 1u);
}

TEST(Run, ResumeRefusesWhatWouldChangeTheResult) {
  const Workplace w;
  w.write_run({{"train", {{"steps", 10}}}});
  ASSERT_EQ(w.run("train run.json").code, 0);
  for (const char* change :
       {"optimizer.lr=0.5", "seed=8", "compact.rank=0.5", "schedule.name=linear", "train.steps=5"}) {
    const Finished f = w.run(std::string("train run.json --resume ") + change);
    EXPECT_EQ(f.code, 2) << change;
    EXPECT_NE(f.err.find(std::string(change).substr(0, std::string(change).find('='))), std::string::npos)
        << f.err;
  }
  w.shard("train.bin", 5000);
  const Finished other_data = w.run("train run.json --resume train.steps=20");
  EXPECT_EQ(other_data.code, 2);
  EXPECT_NE(other_data.err.find("data.train"), std::string::npos) << other_data.err;
  w.shard("train.bin", 4000);
  const Finished fine =
      w.run("train run.json --resume train.steps=20 batch.micro_batch=2 threads=2 memory.preset=block");
  EXPECT_EQ(fine.code, 0) << fine.err;
}

// A damaged checkpoint must not pass for a good one anywhere it is used.
TEST(Run, DamagedWeightsAreRefusedEverywhere) {
  const Workplace w;
  w.write_run({{"train", {{"steps", 20}}}});
  ASSERT_EQ(w.run("train run.json").code, 0);
  const std::string newest = w.checkpoints().back();
  std::string weights = contents(newest + "/model.safetensors");
  weights[weights.size() - 100] = static_cast<char>(weights[weights.size() - 100] ^ 1);
  std::ofstream(newest + "/model.safetensors", std::ios::binary) << weights;
  const std::string older = w.checkpoints()[0];
  for (const std::string& command : std::vector<std::string>{
           "eval out --data val.bin", "eval " + newest + " --data val.bin", "export out --out x",
           "train run.json model= init_from=out train.out_dir=new", "train run.json --resume"}) {
    const Finished f = w.run(command);
    EXPECT_EQ(f.code, 2) << command;
    EXPECT_NE(f.err.find("model.safetensors"), std::string::npos) << command << ": " << f.err;
    if (command.ends_with("--resume")) {
      EXPECT_NE(f.err.find("move"), std::string::npos) << f.err;
    }
  }
  std::filesystem::remove_all(newest);
  EXPECT_EQ(w.run("train run.json --resume").code, 0);
  // A whole run folder serves as a start.
  EXPECT_EQ(w.run("train run.json model= init_from=out train.out_dir=new train.steps=10").code, 0);
}

// Data say which id ends a text; a checkpoint that said another would not stop where its texts do.
TEST(Run, CheckpointsHaveTheTokenIdsOfTheirData) {
  const Workplace w;
  w.shard("x_train_000000.bin", 4000);
  DataManifest manifest;
  manifest.path = w.path("x.json");
  manifest.vocab_size = 64;
  manifest.tokenizer_file = "x_tokenizer.model";
  manifest.end_of_text = 5;
  manifest.shards = {{"x_train_000000.bin", 4000, 0, xxh3_of_file(w.path("x_train_000000.bin"))}};
  write_manifest(manifest);
  const Finished f = w.run("train run.json data.train=x_train_*.bin train.steps=2 train.eval_every=0");
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(nlohmann::json::parse(contents(w.checkpoints().back() + "/config.json"))["eos_token_id"], 5);
}

TEST(Run, ADivergedRunSaysWhatIsLeft) {
  const Workplace w;
  const std::string diverging = "train run.json optimizer.lr=1e30 schedule.warmup=0 train.max_skipped=4 ";
  const Finished f = w.run(diverging + "train.checkpoint_every=50");
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("there is no checkpoint yet"), std::string::npos) << f.err;
  // Checkpoints of steps that are skipped would push out those from before.
  const Finished later = w.run(diverging + "train.out_dir=later train.checkpoint_every=1");
  EXPECT_EQ(later.code, 1);
  ASSERT_EQ(w.events("checkpoint", "later").size() + 4 + 1,
            w.events("step", "later").size() + w.events("skip", "later").size());
  EXPECT_NE(later.err.find("the newest checkpoint is that of step"), std::string::npos) << later.err;
}

TEST(Run, EmptyArgumentsAreNoArguments) {
  const Workplace w;
  ASSERT_EQ(w.run("train run.json train.steps=10").code, 0);
  EXPECT_EQ(w.run("export out --out ''").code, 2);
  EXPECT_EQ(w.run("plan run.json --fit ''").code, 2);
  EXPECT_EQ(w.run("generate out --prompt x --seed -1").code, 2);
}

TEST(Run, OneProcessAtATimeInAFolder) {
  const Workplace w;
  w.write_run({{"train", {{"steps", 100000}, {"checkpoint_every", 20}, {"eval_every", 0}}}});
  const pid_t first = w.start("train run.json");
  ASSERT_TRUE(wait_until([&] { return !w.checkpoints().empty(); }));
  const Finished second = w.run("train run.json --resume");
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("another compact process"), std::string::npos) << second.err;
  const std::size_t steps = w.events("step").size();
  EXPECT_TRUE(wait_until([&] { return w.events("step").size() > steps; })) << "the first run was disturbed";
  kill(first, SIGTERM);
  EXPECT_EQ(w.wait(first).code, 0);
}

TEST(Run, FitsInFiveBudgets) {
  const Workplace w;
  w.write_run({{"data", {{"sequence_length", 64}}},
               {"batch", {{"tokens_per_step", 2048}, {"micro_batch", 32}}},
               {"train", {{"steps", 3}}}});
  const auto peak_of = [](const std::string& json) {
    return nlohmann::json::parse(json)["peak_bytes"].get<std::int64_t>();
  };
  const std::int64_t whole = peak_of(w.run("plan run.json --json").out);
  double slowest = 0;
  for (double share : {1.5, 1.0, 0.7, 0.5, 0.35}) {
    const auto budget = static_cast<std::int64_t>(share * static_cast<double>(whole));
    const Finished fit = w.run("plan run.json --json --fit " + std::to_string(budget));
    ASSERT_EQ(fit.code, 0) << fit.err << share;
    const auto plan = nlohmann::json::parse(fit.out);
    EXPECT_LE(plan["peak_bytes"].get<std::int64_t>(), budget);
    EXPECT_GE(plan["step_flops"].get<double>(), slowest) << "a smaller budget is never faster";
    slowest = plan["step_flops"].get<double>();
    const auto settings = plan["settings"];
    const std::string out = "fit_" + std::to_string(budget);
    const Finished f =
        w.run("train run.json train.out_dir=" + out + " batch.micro_batch=" + settings["micro_batch"].dump() +
              " memory.preset=" + settings["preset"].get<std::string>() +
              " memory.logits_chunk_bytes=" + settings["logits_chunk_bytes"].dump());
    ASSERT_EQ(f.code, 0) << f.err;
    EXPECT_LE(w.events("end", out).back()["measured_peak_bytes"].get<std::int64_t>(), budget);
  }
  EXPECT_EQ(w.run("plan run.json --fit 1000").code, 1);
}

TEST(Run, ACpuWithoutAvx512GivesTheSameLossesToRounding) {
  const Workplace w;
  ASSERT_EQ(w.run("train run.json train.steps=10").code, 0);
  ASSERT_EQ(w.run("train run.json train.steps=10 train.out_dir=avx2", "COMPACT_ISA=avx2").code, 0);
  const auto a = w.events("step"), b = w.events("step", "avx2");
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), 1e-4);
}

// The situations that broke other programs, where they are at hand.
TEST(SharedCases, AllPass) {
  const std::string shared = COMPACT_SOURCE_DIR "/../shared";
  if (!std::filesystem::exists(shared + "/cases/run_cases.py")) GTEST_SKIP() << "../shared/cases is not here";
  const std::string command = "python3 '" + shared + "/cases/run_cases.py' --compact " + COMPACT_BINARY +
                              " --data '" + shared + "/data' --without mpi";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace compact::testing
