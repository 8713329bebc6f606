#include <cstdlib>

#include "engine_testing.h"

/// The model and 30 updates against PyTorch (tests/golden, made by scripts/make_golden.py in float64).
namespace compact::testing {
namespace {

// The environment's COMPACT_SOURCE_DIR is where the sources lie on another machine than the one of the build.
std::string golden(const std::string& name) {
  const char* moved = std::getenv("COMPACT_SOURCE_DIR");
  return std::string(moved != nullptr ? moved : COMPACT_SOURCE_DIR) + "/tests/golden/" + name;
}

std::vector<float> stored(const SafetensorsReader& file, const std::string& name) {
  const StoredTensor& t = file.tensors().at(name);
  std::int64_t n = 1;
  for (std::int64_t d : t.shape) n *= d;
  std::vector<float> out(static_cast<std::size_t>(n));
  // The reader compares shapes, so the view has the stored one.
  Shape shape;
  if (t.shape.size() == 1) shape = {t.shape[0]};
  if (t.shape.size() == 2) shape = {t.shape[0], t.shape[1]};
  if (t.shape.size() == 3) shape = {t.shape[0], t.shape[1], t.shape[2]};
  file.read(name, Tensor(out.data(), shape, DType::F32));
  return out;
}

RunConfig golden_run(const std::string& optimizer) {
  RunConfig run = small_run(optimizer);
  run.data.sequence_length = 16;
  run.batch = {64, 4};
  run.optimizer.betas = {0.9, 0.999};
  run.optimizer.eps = 1e-6;
  run.memory.logits_chunk_bytes = 1000;
  return run;
}

void load(Engine& engine, const SafetensorsReader& file) {
  for (const NamedTensor& t : engine.model().named_weights()) file.read(t.name, t.data);
}

StepBatch batch_of(const std::vector<float>& ids, const std::vector<float>& labels, std::size_t at) {
  StepBatch b;
  b.sequences = 4;
  for (std::size_t i = 0; i < 64; ++i) {
    b.inputs.push_back(static_cast<std::int32_t>(ids[at + i]));
    b.labels.push_back(static_cast<std::int32_t>(labels[at + i]));
    b.targets += b.labels.back() != -100;
  }
  return b;
}

class GoldenModel : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenModel, LossLogitsAndEveryGradient) {
  const SafetensorsReader file(golden(GetParam() + ".safetensors"));
  const ModelConfig model = load_model_config(golden(GetParam() + ".json"));
  EngineRun e(golden_run("adamw"), model);
  load(e.engine, file);
  const std::vector<float> ids = stored(file, "ids");
  const StepResult result = e.step(batch_of(ids, stored(file, "labels"), 0), 0, 0.0);
  EXPECT_NEAR(result.loss, static_cast<double>(stored(file, "loss")[0]), 1e-5 * result.loss);
  for (const auto& [name, gradient] : gradients(e.engine))
    expect_near_largest(gradient, stored(file, "gradient." + name), 1e-5, name);

  // Logits through the cached path of generation, position by position.
  const std::vector<float> logits = stored(file, "logits");
  Arena arena(Device::Cpu, 64 << 20);
  Context context(arena);
  LlamaOptions options;
  options.types.trained = false;
  options.positions = 16;
  Llama decoder(context, model, options);
  for (const NamedTensor& t : decoder.named_weights()) file.read(t.name, t.data);
  const std::vector<BlockCache> caches = decoder.make_caches(context, 16);
  const Tensor id = arena.persistent("id", {1}, DType::I32, Category::Workspace);
  const Tensor out = arena.persistent("logits", {64}, DType::F32, Category::Workspace);
  for (std::int64_t t = 0; t < 16; ++t) {
    id.i32()[0] = static_cast<std::int32_t>(ids[static_cast<std::size_t>(t)]);
    decoder.decode(context, t, id, caches, out);
    expect_near_largest(floats(out), {logits.begin() + t * 64, logits.begin() + (t + 1) * 64}, 1e-5,
                        "logits " + std::to_string(t));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenModel, ::testing::Values("llama_mha", "llama_gqa"));

void follow(EngineRun& e, const SafetensorsReader& file) {
  const std::vector<float> ids = stored(file, "ids"), labels = stored(file, "labels"),
                           lrs = stored(file, "lrs"), losses = stored(file, "losses");
  for (std::size_t t = 0; t < 30; ++t) {
    const StepResult result =
        e.step(batch_of(ids, labels, t * 64), static_cast<std::int64_t>(t), static_cast<double>(lrs[t]));
    EXPECT_TRUE(result.applied);
    EXPECT_NEAR(result.loss, static_cast<double>(losses[t]), 1e-4 * result.loss) << "update " << t;
  }
  for (const NamedTensor& t : e.engine.model().named_weights())
    expect_near_largest(floats(t.data), stored(file, "final." + t.name), 1e-4, t.name);
}

class GoldenAdamW : public ::testing::TestWithParam<std::string> {};

// The same model computed in bf16: 8 bits of each number are left, the structure must be the same.
TEST_P(GoldenModel, InBf16) {
  const SafetensorsReader file(golden(GetParam() + ".safetensors"));
  const ModelConfig model = load_model_config(golden(GetParam() + ".json"));
  RunConfig run = golden_run("adamw");
  run.precision = "bf16";
  EngineRun e(run, model);
  load(e.engine, file);
  const std::vector<float> ids = stored(file, "ids");
  const StepResult result = e.step(batch_of(ids, stored(file, "labels"), 0), 0, 0.0);
  EXPECT_NEAR(result.loss, static_cast<double>(stored(file, "loss")[0]), 4e-3 * result.loss);
  for (const auto& [name, gradient] : gradients(e.engine))
    expect_near_largest(gradient, stored(file, "gradient." + name), 0.04, name);
}

TEST_P(GoldenAdamW, ThirtyUpdates) {
  RunConfig run = golden_run("adamw");
  run.optimizer.weight_decay = 0.1;
  run.optimizer.block_scale = GetParam() == "adamw" ? 1.0 : 0.1;
  EngineRun e(run, load_model_config(golden("llama_mha.json")));
  load(e.engine, SafetensorsReader(golden("llama_mha.safetensors")));
  follow(e, SafetensorsReader(golden(GetParam() + ".safetensors")));
}

INSTANTIATE_TEST_SUITE_P(Runs, GoldenAdamW, ::testing::Values("adamw", "adamw_block_scale"));

struct CompactCase {
  std::string sharing, preset;
};

class GoldenCompact : public ::testing::TestWithParam<CompactCase> {};

// Two reseeds (at updates 12 and 24), two micro-batches an update.
TEST_P(GoldenCompact, ThirtyUpdates) {
  RunConfig run = golden_run("compact");
  run.batch.micro_batch = 2;
  run.compact.sharing = GetParam().sharing;
  run.compact.update_gap = 12;
  run.memory.preset = GetParam().preset;
  run.seed = 0x1234567890abcdefull;
  EngineRun e(run, load_model_config(golden("llama_gqa.json")));
  load(e.engine, SafetensorsReader(golden("llama_gqa.safetensors")));
  const SafetensorsReader file(golden("compact_" + GetParam().sharing + ".safetensors"));
  follow(e, file);
  for (const NamedTensor& state : e.engine.optimizer().states()) {
    const std::string kind = state.name.substr(state.name.size() - 1);
    const std::string name = kind + "." + state.name.substr(0, state.name.size() - 2);
    expect_near_largest(floats(state.data), stored(file, name), 1e-4, state.name);
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, GoldenCompact,
                         ::testing::Values(CompactCase{"per_weight", "paper"},
                                           CompactCase{"per_weight", "lean"},
                                           CompactCase{"per_input", "lean"},
                                           CompactCase{"per_input", "block"}),
                         [](const auto& test) { return test.param.sharing + "_" + test.param.preset; });

}  // namespace
}  // namespace compact::testing
