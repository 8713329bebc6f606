#include "compact/model/weights_file.h"

#include <algorithm>
#include <limits>

#include "unit/io/io_testing.h"

namespace compact {
namespace {

/// A model folder to damage, and memory to read it to.
class WeightsFile : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    config_.vocab_size = 10;
    config_.hidden_size = 8;
    config_.intermediate_size = 12;
    config_.layers = 2;
    config_.heads = 4;
    config_.kv_heads = 2;
    put_file(at("config.json"), "{}");
    make(config_);
  }
  void make(const ModelConfig& config) {
    memory_.clear();
    tensors_.clear();
    float value = 0;
    for (const auto& [name, shape] : hugging_face_weights(config)) {
      memory_.emplace_back(static_cast<std::size_t>(shape.elements()));
      for (float& x : memory_.back()) x = value++;
      tensors_.push_back({name, Tensor(memory_.back().data(), shape, DType::F32)});
    }
  }
  void write() { write_safetensors(at("model.safetensors"), tensors_, {}); }
  /// Loads into cleared memory and returns the message of the error.
  std::string problem() {
    return message_of<InputError>([&] { load_weights(at(""), config_, tensors_); });
  }
  NamedTensor& named(const std::string& name) {
    return *std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
  }

  ModelConfig config_;
  std::vector<std::vector<float>> memory_;
  std::vector<NamedTensor> tensors_;
};

TEST_F(WeightsFile, NamesAndShapesAreHuggingFaces) {
  const auto weights = hugging_face_weights(config_);
  ASSERT_EQ(weights.size(), 1u + 2 * 9 + 2);
  EXPECT_EQ(weights.front().first, "model.embed_tokens.weight");
  EXPECT_EQ(weights.front().second, (Shape{10, 8}));
  EXPECT_EQ(weights[3].first, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(weights[3].second, (Shape{4, 8}));
  EXPECT_EQ(weights[18].first, "model.layers.1.mlp.down_proj.weight");
  EXPECT_EQ(weights[18].second, (Shape{8, 12}));
  EXPECT_EQ(weights.back().first, "lm_head.weight");
  config_.tie_word_embeddings = true;
  EXPECT_EQ(hugging_face_weights(config_).back().first, "model.norm.weight");
}

TEST_F(WeightsFile, EveryValueIsRead) {
  write();
  const auto expected = memory_;
  for (auto& m : memory_) std::fill(m.begin(), m.end(), -1.0f);
  load_weights(at(""), config_, tensors_);
  EXPECT_EQ(memory_, expected);
}

TEST_F(WeightsFile, BuffersAndSharedHeadArePassedOver) {
  Owned<float> frequencies({1}, DType::F32, 1.0f);
  tensors_.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", frequencies.tensor});
  write();
  tensors_.pop_back();
  load_weights(at(""), config_, tensors_);
  config_.tie_word_embeddings = true;
  tensors_.pop_back();
  load_weights(at(""), config_, tensors_);  // the file still holds lm_head.weight
}

TEST_F(WeightsFile, MissingTensorIsNamed) {
  const auto all = tensors_;
  std::erase_if(tensors_, [](const auto& t) { return t.name == "model.layers.1.mlp.up_proj.weight"; });
  write();
  tensors_ = all;
  expect_has(problem(), {at("model.safetensors"), "model.layers.1.mlp.up_proj.weight", "missing"});
}

TEST_F(WeightsFile, TensorTooMuchIsNamed) {
  ModelConfig deeper = config_;
  deeper.layers = 3;
  make(deeper);
  write();
  make(config_);
  expect_has(problem(), {at("model.safetensors"), "model.layers.2.", "2 layers"});
}

TEST_F(WeightsFile, OtherShapeIsNamed) {
  Tensor& gate = named("model.layers.0.mlp.gate_proj.weight").data;
  const Tensor right = gate;
  gate = gate.reshaped({8, 12});
  write();
  gate = right;
  expect_has(problem(), {"model.layers.0.mlp.gate_proj.weight", "[12, 8]", "[8, 12]"});
}

TEST_F(WeightsFile, ValuesThatAreNotFiniteAreRefused) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    make(config_);
    memory_[5].back() = bad;
    write();
    expect_has(problem(), {at("model.safetensors"), tensors_[5].name, "not finite"});
  }
}

}  // namespace
}  // namespace compact
