#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "compact/core/bf16.h"
#include "compact/train/engine.h"
#include "compact/train/plan.h"
#include "test_device.h"

/// What tests of the whole engine share: small models, engines in an arena of exactly the planned size,
/// batches.
namespace compact::testing {

inline ModelConfig small_model(std::int64_t kv_heads = 2) {
  ModelConfig m;
  m.vocab_size = 61;
  m.hidden_size = 24;
  m.intermediate_size = 40;
  m.layers = 2;
  m.heads = 4;
  m.kv_heads = kv_heads;
  m.max_positions = 64;
  return m;
}

inline RunConfig small_run(const std::string& optimizer = "adamw", const std::string& preset = "lean") {
  RunConfig run;
  run.model = "model.json";
  run.data.train = "train.bin";
  run.data.val = "val.bin";
  run.data.sequence_length = 12;
  run.batch = {8 * 12, 4};
  run.optimizer.name = optimizer;
  run.optimizer.lr = 0.01;
  run.compact.update_gap = 2;
  run.memory.preset = preset;
  run.memory.logits_chunk_bytes = 61 * 4 * 10;  // several chunks, a short last one
  run.train.steps = 10;
  run.train.out_dir = "out";
  return run;
}

/// The run on the device of the tests.
inline RunConfig on_test_device(RunConfig run) {
  if (on_cuda()) run.device = "cuda";
  return run;
}

/// An engine with an arena of the planned size, on the device of the run.
struct EngineRun {
  EngineRun(const RunConfig& run_, const ModelConfig& model, bool graph = true)
      : run(on_test_device(run_)),
        plan(plan_run(run, model)),
        queue(make_test_queue({.graph = graph})),
        arena(queue ? Device::Cuda : Device::Cpu, plan.peak),
        communicator(make_local_communicator()),
        engine(arena, run, model, *communicator, queue.get()) {
    engine.initialize();
    if (queue) queue->wait();
  }
  StepResult step(const StepBatch& batch, std::int64_t index, double lr) {
    return engine.step(batch, index, lr);
  }

  RunConfig run;
  RunPlan plan;
  std::unique_ptr<cuda::Queue> queue;
  Arena arena;
  std::unique_ptr<Communicator> communicator;
  Engine engine;
};

/// `sequences` rows of T tokens; about one label in `masked` is ignored (0: none).
inline StepBatch random_batch(std::int64_t sequences, std::int64_t T, std::int64_t vocab, std::uint32_t seed,
                              std::uint32_t masked = 0) {
  StepBatch b;
  std::mt19937 generator(seed);
  b.sequences = sequences;
  for (std::int64_t i = 0; i < sequences * T; ++i) {
    b.inputs.push_back(static_cast<std::int32_t>(generator() % static_cast<std::uint32_t>(vocab)));
    const bool ignored = masked > 0 && generator() % masked == 0;
    b.labels.push_back(ignored ? -100
                               : static_cast<std::int32_t>(generator() % static_cast<std::uint32_t>(vocab)));
    b.targets += ignored ? 0 : 1;
  }
  return b;
}

/// All elements (F32 or BF16) in row-major order.
inline std::vector<float> floats(const Tensor& t) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < t.rows(); ++i)
    for (std::int64_t j = 0; j < t.cols(); ++j)
      out.push_back(t.dtype == DType::BF16 ? to_float(t.as<Bf16>()[i * t.ld + j]) : t.f32()[i * t.ld + j]);
  return out;
}

/// Writes `from` (row-major) into a contiguous tensor, rounded to its type.
inline void fill_from(const Tensor& t, const std::vector<float>& from) {
  ASSERT_EQ(static_cast<std::int64_t>(from.size()), t.elements());
  for (std::size_t i = 0; i < from.size(); ++i)
    if (t.dtype == DType::BF16)
      put(t.as<Bf16>()[i], from[i]);
    else
      t.f32()[i] = from[i];
}

/// All weights and states, for comparisons to the bit.
inline std::map<std::string, std::vector<float>> everything(Engine& engine) {
  std::map<std::string, std::vector<float>> all;
  for (const NamedTensor& t : engine.model().named_weights()) all[t.name] = floats(t.data);
  for (const NamedTensor& t : engine.optimizer().states()) all[t.name] = floats(t.data);
  return all;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The gradients of a step's last pass under Hugging Face names (compressed ones too).
inline std::map<std::string, std::vector<float>> gradients(Engine& engine) {
  std::map<std::string, std::vector<float>> all;
  for (const Parameter& p : engine.model().parameters())
    for (const Member& m : p.members)
      all[m.name] = floats(m.role == Role::Norm ? p.gradient : p.gradient.row_range(m.first_row, m.rows));
  return all;
}

/// |got - want| <= tolerance · (largest |want|) for all elements.
inline void expect_near_largest(const std::vector<float>& got, const std::vector<float>& want,
                                double tolerance, const std::string& name) {
  ASSERT_EQ(got.size(), want.size()) << name;
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(want[i])));
    const double d = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    ASSERT_FALSE(std::isnan(d)) << name << " element " << i;
    worst = std::max(worst, d);
  }
  EXPECT_LE(worst, tolerance * largest) << name << ": largest value " << largest;
}

/// A file of ../shared/cases/numeric, or null where the folder is missing.
inline nlohmann::json numeric_case(const std::string& name) {
  std::ifstream file(COMPACT_SOURCE_DIR "/../shared/cases/numeric/" + name + ".json");
  return file ? nlohmann::json::parse(file) : nlohmann::json();
}

}  // namespace compact::testing

/// Skips the test by name where the reference numbers are not at hand.
#define COMPACT_NUMERIC_CASE(variable, name)                              \
  const nlohmann::json variable = ::compact::testing::numeric_case(name); \
  if (variable.is_null()) GTEST_SKIP() << "../shared/cases/numeric/" << name << ".json is not here"
