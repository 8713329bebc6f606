// `compact inspect` and `compact export` as a user calls them.
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "compact/data/token_shard.h"
#include "compact/io/checkpoint.h"
#include "compact/io/file.h"
#include "compact/model/config.h"
#include "compact/model/weights_file.h"
#include "unit/io/io_testing.h"

namespace compact {
namespace {

namespace fs = std::filesystem;

class Inspect : public FolderTest {
 protected:
  struct Result {
    int exit = -1;
    std::string output;  ///< both streams
  };
  static Result run(const std::string& words) {
    const std::string command = std::string(COMPACT_BINARY) + " " + words + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    Result result;
    std::array<char, 4096> piece;
    while (const std::size_t n = fread(piece.data(), 1, piece.size(), pipe))
      result.output.append(piece.data(), n);
    const int status = pclose(pipe);
    if (WIFEXITED(status)) result.exit = WEXITSTATUS(status);
    return result;
  }
  void SetUp() override {
    FolderTest::SetUp();
    if (!fs::exists(COMPACT_BINARY)) GTEST_SKIP() << "needs the program " << COMPACT_BINARY;
  }
  /// Shows `path`, which must work and be short, and looks for `words`.
  void expect_shown(const std::string& path, const std::vector<std::string>& words) {
    const Result result = run("inspect " + path);
    EXPECT_EQ(result.exit, 0) << result.output;
    expect_has(result.output, words);
    EXPECT_LE(std::count(result.output.begin(), result.output.end(), '\n'), 40) << path;
  }
  /// A run folder with one checkpoint of a small model.
  std::string make_run() {
    ModelConfig config;
    config.vocab_size = 10;
    config.hidden_size = 8;
    config.intermediate_size = 12;
    config.layers = 4;
    config.heads = config.kv_heads = 2;
    std::vector<std::vector<float>> memory;
    CheckpointContents contents;
    contents.step = 12;
    contents.config_json = hugging_face_config(config, "float32");
    contents.state_json =
        "{\"step\": 12, \"tokens\": 34567, \"config\": {\"optimizer\": {\"name\": \"adamw\"}}}";
    for (const auto& [name, shape] : hugging_face_weights(config)) {
      memory.emplace_back(static_cast<std::size_t>(shape.elements()));
      contents.weights.push_back({name, Tensor(memory.back().data(), shape, DType::F32)});
    }
    write_checkpoint(at("run/checkpoints/step_00000012"), contents);
    return at("run/checkpoints/step_00000012");
  }
};

TEST_F(Inspect, Checkpoint) {
  const std::string folder = make_run();
  expect_shown(folder,
               {"checkpoint", "4 layers", "34,567", "adamw", "model.safetensors", "sizes and hashes hold"});
  expect_shown(folder + "/model.safetensors",
               {"F32", "[10, 8]", "model.embed_tokens.weight", "and 15 more", "39 tensors"});
  expect_shown(folder + "/MANIFEST.json", {"manifest of a checkpoint", "12", "config.json"});
  expect_shown(folder + "/config.json", {"hidden_size", "8"});
  std::string bytes = bytes_of_file(folder + "/model.safetensors");
  bytes.back() = 1;
  put_file(folder + "/model.safetensors", bytes);
  const Result broken = run("inspect " + folder);
  EXPECT_EQ(broken.exit, 2);
  expect_has(broken.output, {folder + "/model.safetensors", "damaged"});
}

TEST_F(Inspect, RunFolder) {
  make_run();
  fs::create_directories(at("run/checkpoints/step_00000013"));
  put_file(at("run/config.resolved.json"), R"({"train": {"steps": 77, "out_dir": "run"}, "seed": 42})");
  put_file(at("run/metrics.jsonl"),
           "{\"event\": \"start\"}\n{\"event\": \"step\", \"step\": 1, \"loss\": 6.123456789}\n"
           "{\"event\": \"eval\", \"step\": 1, \"loss\": 5.5}\n{\"event\": \"step\", \"st");
  expect_shown(at("run"), {"run folder", "steps=77", "1 eval, 1 start, 1 step", "loss=6.12346", "loss=5.5",
                           "step_00000012", "step_00000013: has no MANIFEST.json"});
  expect_shown(at("run/metrics.jsonl"), {"metrics", "loss=5.5"});
  put_file(at("run/metrics.jsonl"), "{\"event\": \"start\"}\nnonsense\n");
  const Result broken = run("inspect " + at("run/metrics.jsonl"));
  EXPECT_EQ(broken.exit, 2);
  expect_has(broken.output, {at("run/metrics.jsonl"), "line 2"});
}

TEST_F(Inspect, DataFiles) {
  std::vector<std::int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 20;
  std::string shard(reinterpret_cast<const char*>(header.data()), 1024);
  for (char i = 0; i < 20; ++i) shard += {static_cast<char>(i + 40), '\0'};
  put_file(at("x_train_000000.bin"), shard);
  expect_shown(at("x_train_000000.bin"), {"token shard", "uint16", "20", "40 41 42"});
  put_file(at("renamed"), shard);
  expect_shown(at("renamed"), {"token shard"});
  DataManifest manifest;
  manifest.path = at("x.json");
  manifest.vocab_size = 64;
  manifest.tokenizer_file = "x_tokenizer.model";
  manifest.end_of_text = 2;
  manifest.shards = {{"x_train_000000.bin", 20, 0, xxh3_of_file(at("x_train_000000.bin"))}};
  write_manifest(manifest);
  expect_shown(at("x.json"),
               {"manifest of token shards", "packed", "1 entr", "x_train_000000.bin", "hashes hold"});
  shard[1024 + 6] = 1;  // one token changed: the hash tells
  put_file(at("x_train_000000.bin"), shard);
  EXPECT_EQ(run("inspect " + at("x.json")).exit, 2);
  fs::remove(at("x_train_000000.bin"));
  EXPECT_EQ(run("inspect " + at("x.json")).exit, 2);
  put_file(at("run.log"), "one\ntwo\x1b[2J\nthree\nfour\nfive\nsix\nseven\n");
  expect_shown(at("run.log"), {"7", "| one", "two [2J", "| seven"});
  put_file(at("cut.bin"), shard.substr(0, 1030));
  EXPECT_EQ(run("inspect " + at("cut.bin")).exit, 2);
}

TEST_F(Inspect, Unknown) {
  put_file(at("noise.dat"), "abcdefgh");
  put_file(at("empty"), "");
  fs::create_directories(at("folder"));
  for (const char* name : {"noise.dat", "empty", "folder", "missing"}) {
    const Result result = run("inspect " + at(name));
    EXPECT_EQ(result.exit, 2) << name;
    expect_has(result.output, {at(name)});
  }
}

TEST_F(Inspect, ExportTakesTheNewestOfARun) {
  make_run();
  const Result result = run("export " + at("run") + " --out " + at("out"));
  EXPECT_EQ(result.exit, 0) << result.output;
  expect_has(result.output, {"step_00000012", "config.json", "model.safetensors"});
  expect_shown(at("out"), {"model folder", "4 layers", "no MANIFEST.json"});
  EXPECT_EQ(run("export " + at("run") + " --out " + at("out")).exit, 2);
  EXPECT_EQ(run("export " + at("run") + " --out /proc/x").exit, 1);
}

}  // namespace
}  // namespace compact
