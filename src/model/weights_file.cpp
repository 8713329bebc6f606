#include "compact/model/weights_file.h"

#include <cstdint>
#include <filesystem>
#include <map>

#include "compact/core/error.h"
#include "compact/io/checkpoint.h"

namespace compact {

namespace {

/// A value is infinite or not a number exactly when all bits of its exponent are set.
bool all_finite(const Tensor& t) {
  bool finite = true;
  const std::int64_t n = t.elements();
  if (t.dtype == DType::F32) {
    const auto* bits = static_cast<const std::uint32_t*>(t.data);
    for (std::int64_t i = 0; i < n; ++i) finite &= (bits[i] & 0x7f800000u) != 0x7f800000u;
  } else {
    const auto* bits = static_cast<const std::uint16_t*>(t.data);
    for (std::int64_t i = 0; i < n; ++i) finite &= (bits[i] & 0x7f80u) != 0x7f80u;
  }
  return finite;
}

bool follows_from_config(const std::string& name, const ModelConfig& config) {
  return name.ends_with(".rotary_emb.inv_freq") || (config.tie_word_embeddings && name == "lm_head.weight");
}

/// Every weight there in its shape, and nothing else. All is checked before the first value is read.
void check_names(const SafetensorsReader& file, const ModelConfig& config) {
  std::map<std::string, Shape> expected;
  for (const auto& [name, shape] : hugging_face_weights(config)) {
    expected.emplace(name, shape);
    const auto found = file.tensors().find(name);
    if (found == file.tensors().end())
      input_error("{}: the tensor {} is missing; config.json asks for {} layers{}", file.path(), name,
                  config.layers, config.tie_word_embeddings ? " and a shared head" : "");
    const std::string shape_found = fmt::format("[{}]", fmt::join(found->second.shape, ", "));
    if (shape_found != shape.text())
      input_error("{}: tensor {} should have the shape {} after config.json, the file has {}", file.path(),
                  name, shape.text(), shape_found);
  }
  for (const auto& [name, stored] : file.tensors())
    if (!expected.contains(name) && !follows_from_config(name, config))
      input_error("{}: holds the tensor {}, which the model of config.json ({} layers) does not have",
                  file.path(), name, config.layers);
}

}  // namespace

std::vector<std::pair<std::string, Shape>> hugging_face_weights(const ModelConfig& config) {
  const std::int64_t C = config.hidden_size, F = config.intermediate_size, V = config.vocab_size,
                     K = config.kv_width();
  std::vector<std::pair<std::string, Shape>> weights = {{"model.embed_tokens.weight", {V, C}}};
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const auto add = [&](const char* name, const Shape& shape) {
      weights.emplace_back(fmt::format("model.layers.{}.{}.weight", i, name), shape);
    };
    add("input_layernorm", {C});
    add("self_attn.q_proj", {C, C});
    add("self_attn.k_proj", {K, C});
    add("self_attn.v_proj", {K, C});
    add("self_attn.o_proj", {C, C});
    add("post_attention_layernorm", {C});
    add("mlp.gate_proj", {F, C});
    add("mlp.up_proj", {F, C});
    add("mlp.down_proj", {C, F});
  }
  weights.emplace_back("model.norm.weight", Shape{C});
  if (!config.tie_word_embeddings) weights.emplace_back("lm_head.weight", Shape{V, C});
  return weights;
}

DType weights_dtype(const std::string& folder) {
  require_model_folder(folder);
  const SafetensorsReader file((std::filesystem::path(folder) / "model.safetensors").string());
  for (const auto& [name, stored] : file.tensors())
    if (stored.dtype != name_of(DType::BF16)) return DType::F32;
  return DType::BF16;
}

void load_weights(const std::string& folder, const ModelConfig& config, const std::vector<NamedTensor>& into,
                  HostAccess host) {
  require_model_folder(folder);
  const SafetensorsReader file((std::filesystem::path(folder) / "model.safetensors").string());
  check_names(file, config);
  for (const NamedTensor& to : into) {
    NamedTensor values = to;
    values.data = host.begin_write(to.data);
    file.read(values);
    if (!all_finite(values.data))
      input_error("{}: tensor {} holds a value that is not finite (NaN or infinity); the model is damaged",
                  file.path(), to.name);
    host.end_write(to.data);
  }
}

}  // namespace compact
