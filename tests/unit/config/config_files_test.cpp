#include <algorithm>
#include <map>
#include <vector>

#include "compact/model/config.h"
#include "compact/train/run_config.h"
#include "config_testing.h"

namespace compact {
namespace {

const std::string kConfigs = COMPACT_SOURCE_DIR "/configs/";

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

ModelConfig model_of(const RunConfig& run) { return load_model_config(COMPACT_SOURCE_DIR "/" + run.model); }

TEST(ConfigFiles, EveryFileIsFine) {
  EXPECT_GE(files_in(kConfigs + "model").size(), 8u);
  for (const std::string& path : files_in(kConfigs + "model")) load_model_config(path);
  EXPECT_GE(files_in(kConfigs + "run").size(), 20u);
  for (const std::string& path : files_in(kConfigs + "run")) {
    const RunConfig run = load_run_config(path, {});
    check_against_model(run, model_of(run), path);
    EXPECT_TRUE(unused_settings(run).empty()) << path << ": " << unused_settings(run).front();
    EXPECT_EQ(run.train.out_dir, "runs/" + std::filesystem::path(path).stem().string());
  }
}

TEST(ConfigFiles, ModelsOfThePaper) {
  const std::map<std::string, std::int64_t> parameters = {{"9m", 8995968},     {"60m", 58073600},
                                                          {"130m", 134105856}, {"350m", 367969280},
                                                          {"1b", 1339082752},  {"7b", 6738415616}};
  for (const auto& [name, count] : parameters) {
    const ModelConfig model = load_model_config(kConfigs + "model/llama_" + name + ".json");
    EXPECT_EQ(model.parameters(), count) << name;
    EXPECT_EQ(model.vocab_size, 32000);
    EXPECT_EQ(model.rms_norm_eps, 1e-6);
    EXPECT_EQ(model.rope_theta, 10000);
    EXPECT_EQ(model.initializer_range, 0.02);
    EXPECT_FALSE(model.tie_word_embeddings);
  }
}

// The paper's recipe, as docs/method.md has it.
TEST(ConfigFiles, RunsOfThePaper) {
  const std::map<std::string, std::int64_t> steps = {
      {"60m", 10000}, {"130m", 20000}, {"350m", 60000}, {"1b", 100000}};
  const std::map<std::string, double> ranks = {
      {"adamw", 0}, {"compact_n2", 0.5}, {"compact_n4", 0.25}, {"compact_n8", 0.125}};
  for (const auto& [size, count] : steps) {
    for (const auto& [kind, rank] : ranks) {
      const std::string path = kConfigs + "run/c4_" + size + "_" + kind + ".json";
      const RunConfig c = load_run_config(path, {});
      const bool large = size == "1b";
      EXPECT_EQ(c.model, "configs/model/llama_" + size + ".json");
      EXPECT_EQ(c.data.sequence_length, 256);
      EXPECT_EQ(c.batch.tokens_per_step, 512 * 256);
      EXPECT_EQ(c.train.steps, count);
      EXPECT_EQ(c.optimizer.lr, large ? 0.003 : 0.01);
      EXPECT_EQ(c.optimizer.betas, (std::array<double, 2>{0.9, 0.999}));
      EXPECT_EQ(c.optimizer.eps, 1e-6);
      EXPECT_EQ(c.optimizer.weight_decay, 0);
      EXPECT_FALSE(c.optimizer.clip_norm.has_value());
      EXPECT_EQ(c.optimizer.state_dtype, "bf16");
      EXPECT_EQ(c.optimizer.gradient_dtype, "bf16");
      EXPECT_EQ(c.precision, "bf16");
      EXPECT_EQ(c.schedule.name, "cosine");
      EXPECT_EQ(c.schedule.warmup, (Period{10, Period::Unit::Percent}));
      EXPECT_EQ(c.schedule.final_fraction, 0.1);
      EXPECT_EQ(c.memory.preset, "paper");
      EXPECT_EQ(c.eval.protocol, "galore");
      EXPECT_EQ(c.optimizer.name, rank > 0 ? "compact" : "adamw");
      if (rank == 0) continue;
      EXPECT_EQ(c.compact.rank, rank);
      EXPECT_EQ(c.compact.alpha, 0.25);
      EXPECT_EQ(c.compact.update_gap, large ? 200 : 50);
      EXPECT_EQ(c.compact.out_scale, large ? 1.0 : 0.5);
      EXPECT_EQ(c.compact.sharing, "per_weight");
      EXPECT_EQ(c.compact.layers.size(), 6u);
    }
  }
}

// Both runs of a comparison see the same batches under the same schedule.
TEST(ConfigFiles, PairsDifferOnlyInTheOptimizer) {
  for (const auto& [a, b] :
       {std::pair{"quickstart_adamw", "quickstart_compact"}, {"llama_9m_adamw", "llama_9m_compact_n4"}}) {
    const RunConfig first = load_run_config(kConfigs + "run/" + a + ".json", {});
    const RunConfig second = load_run_config(kConfigs + "run/" + b + ".json", {});
    for (const ConfigDifference& d : compare_configs(first, second)) {
      const bool method = d.key.starts_with("optimizer.") || d.key.starts_with("compact.");
      EXPECT_TRUE(method || d.key == "train.out_dir") << a << ": " << d.key;
    }
  }
}

}  // namespace
}  // namespace compact
