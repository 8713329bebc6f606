#pragma once
#include <algorithm>
#include <set>

#include "compact/io/checkpoint.h"
#include "compact/kernels/elementwise.h"
#include "compact/model/llama.h"
#include "compact/model/weights_file.h"
#include "compact/optim/optimizer.h"
#include "compact/optim/own_rows.h"
#include "unit/train/engine_testing.h"

/// What tests of optimizers that have some rows of each parameter share: a small model and its ranks.
namespace compact::testing {

/// The workspace of a product is large on a CUDA device.
inline std::int64_t arena_bytes() { return std::int64_t{on_cuda() ? 36 : 1} << 20; }

inline constexpr std::int64_t kGap = 2;  // updates that share one P

/// What is trained, and how.
struct Setting {
  OptimizerOptions optimizer;
  LlamaOptions model;
  std::string text;
};

inline Setting setting(const std::string& name, DType weights = DType::F32) {
  Setting s;
  s.optimizer.name = name;
  s.optimizer.weight_decay = 0.01;
  s.optimizer.seed = 42;
  s.model.types.activation = weights;
  s.model.positions = 4;
  if (name == "compact") {
    s.model.compact = CompactOptions{};
    s.model.compact->update_gap = kGap;
    s.model.compact->seed = 42;
    s.model.compact->layers = {Role::Q, Role::K, Role::V, Role::Gate, Role::Up, Role::Down};
  }
  s.text = name + (weights == DType::BF16 ? " bf16" : "");
  return s;
}

/// A model with random gradients, and the optimizers of `size` ranks on the same weights, each with memory of
/// its own. Size 0: one optimizer of the parameters as they are.
struct Shares {
  Shares(const Setting& setting_, int size) : setting(setting_), model_context(arena, test_queue()) {
    model.emplace(model_context, small_model(), setting.model);
    model->initialize(model_context, 7);
    gate = arena.persistent("gate", {3}, DType::F32, Category::Workspace);
    const float halved[3] = {0.5f, 1, 0};  // open
    std::copy_n(halved, 3, gate.f32());
    for (const Parameter& p : model->parameters())
      if (p.compression && keeps_matrix(p.compression->projection.kind))
        prepare_projection(model_context, p.compression->at_update(0));
    for (int rank = 0; rank < std::max(size, 1); ++rank) {
      ranks.push_back(std::make_unique<Rank>());
      Rank& r = *ranks.back();
      r.parameters = size == 0 ? model->parameters() : own_rows(model->parameters(), rank, size);
      r.optimizer = make_optimizer(setting.optimizer);
      r.optimizer->allocate(r.context, r.parameters);
      r.optimizer->adopt_weights(r.context, r.parameters);
    }
  }

  struct Rank {
    Arena arena{test_device(), arena_bytes()};
    Context context{arena, test_queue()};
    std::vector<Parameter> parameters;
    std::unique_ptr<Optimizer> optimizer;
  };

  /// Update `index` by every rank, one after another, with gradients that depend on the index alone.
  void update(std::int64_t index) {
    const std::vector<Parameter>& whole = model->parameters();
    for (std::size_t i = 0; i < whole.size(); ++i) {
      std::mt19937 generator(static_cast<std::uint32_t>(1000 * (index + 1)) + whole[i].id);
      std::normal_distribution<float> normal;
      std::vector<float> gradient(static_cast<std::size_t>(whole[i].gradient.elements()));
      for (float& x : gradient) x = normal(generator);
      fill_from(whole[i].gradient, gradient);
    }
    if (index > 0 && index % kGap == 0) reseed(index);
    for (const auto& rank : ranks)
      for (std::size_t i = 0; i < whole.size(); ++i)
        rank->optimizer->update(rank->context, rank->parameters[i], i,
                                {index, index + 1, index % kGap + 1, 0.1, gate.f32()});
  }

  /// The P of update `index` takes the place of the one before, in all parameters that share it at once.
  void reseed(std::int64_t index) {
    const std::vector<Parameter>& whole = model->parameters();
    std::set<std::uint32_t> done;
    for (const Parameter& p : whole) {
      if (!p.compression || !done.insert(p.compression->projection.id).second) continue;
      const ScratchScope scope(arena);
      const Projection before = p.compression->at_update(index - 1);
      Projection next = p.compression->at_update(index);
      const bool kept = keeps_matrix(next.kind);
      if (kept) {
        next.matrix = arena.scratch("next", {next.n, next.r}, next.dtype);
        prepare_projection(model_context, next);
      }
      for (const auto& rank : ranks)
        for (std::size_t i = 0; i < whole.size(); ++i)
          if (whole[i].compression && whole[i].compression->projection.id == next.id)
            rank->optimizer->reseed(rank->context, rank->parameters[i], i, before, next);
      if (kept) copy(model_context, next.matrix, before.matrix);
    }
  }

  /// All weights, and all states put together from the ranks', which must have each element once.
  std::map<std::string, std::vector<float>> everything() const {
    std::map<std::string, std::vector<float>> all;
    for (const NamedTensor& t : model->named_weights()) all[t.name] = floats(t.data);
    const std::vector<NamedTensor> first = ranks.front()->optimizer->states();
    for (const auto& rank : ranks) {
      const std::vector<NamedTensor> states = rank->optimizer->states();
      EXPECT_EQ(states.size(), first.size());
      for (std::size_t i = 0; i < states.size(); ++i) {
        const NamedTensor& t = states[i];
        EXPECT_EQ(t.name, first[i].name);
        EXPECT_EQ(t.shape().text(), first[i].shape().text()) << t.name;
        std::vector<float>& sum = all[t.name];
        if (t.data.elements() > 0) {
          EXPECT_EQ(static_cast<std::int64_t>(sum.size()), t.first) << t.name;
        }
        const std::vector<float> part = floats(t.data);
        sum.insert(sum.end(), part.begin(), part.end());
      }
    }
    for (const NamedTensor& t : first)
      EXPECT_EQ(static_cast<std::int64_t>(all[t.name].size()), t.shape().elements()) << t.name;
    return all;
  }

  /// A checkpoint of the model, its states collected from the ranks.
  void write(const std::string& folder) {
    CheckpointContents contents;
    contents.config_json = hugging_face_config(model->config(), "float32");
    contents.weights = model->named_weights();
    contents.optimizer = ranks.front()->optimizer->states();
    std::vector<std::byte> whole;
    contents.read = [&](const NamedTensor& asked) -> const void* {
      if (asked.file_shape.rank() == 0) return asked.data.data;  // a weight
      whole.clear();
      for (const auto& rank : ranks)
        for (const NamedTensor& t : rank->optimizer->states()) {
          if (t.name != asked.name || t.data.elements() == 0) continue;
          const auto* bytes = static_cast<const std::byte*>(t.data.data);
          whole.insert(whole.end(), bytes, bytes + t.data.bytes());
        }
      return whole.data();
    };
    write_checkpoint(folder, contents);
  }

  /// Reads it, each rank what is its own.
  void read(const std::string& folder) {
    load_weights(folder, model->config(), model->named_weights(), HostAccess(test_queue()));
    const SafetensorsReader file(folder + "/optimizer.safetensors");
    for (const auto& rank : ranks)
      for (const NamedTensor& t : rank->optimizer->states()) file.read(t);
  }

  Setting setting;
  Arena arena{test_device(), arena_bytes()};
  Context model_context;
  std::optional<Llama> model;
  Tensor gate;
  std::vector<std::unique_ptr<Rank>> ranks;
};

}  // namespace compact::testing
