#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace compact {

/// The shape of a LLaMA model: the keys of a Hugging Face config.json (and of GaLore's model files).
struct ModelConfig {
  std::int64_t vocab_size = 0;         ///< V
  std::int64_t hidden_size = 0;        ///< C
  std::int64_t intermediate_size = 0;  ///< F
  std::int64_t layers = 0;             ///< L, num_hidden_layers
  std::int64_t heads = 0;              ///< H, num_attention_heads
  std::int64_t kv_heads = 0;           ///< Hkv, num_key_value_heads; H where the file has none
  std::int64_t max_positions = 0;      ///< max_position_embeddings (or max_sequence_length); 0 if not given
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;  ///< the head is the embedding; no lm_head.weight
  std::int64_t bos_token_id = 1;
  std::int64_t eos_token_id = 2;

  std::int64_t head_width() const { return hidden_size / heads; }    ///< D
  std::int64_t kv_width() const { return kv_heads * head_width(); }  ///< Hkv · D
  std::int64_t parameters() const;                                   ///< all weights
  bool operator==(const ModelConfig&) const = default;
};

/// Reads and checks a model file. Throws InputError that names the file, the key, what was found and what is
/// possible: another architecture, activation, biases, rope scaling, widths that do not divide, odd heads.
ModelConfig load_model_config(const std::string& path);
/// The same from a JSON text already at hand; `name` is used in messages.
ModelConfig parse_model_config(std::string_view json_text, const std::string& name);

/// The config.json of a Hugging Face folder for this model, as text. `dtype` is "float32" or "bfloat16".
std::string hugging_face_config(const ModelConfig& config, const std::string& dtype);

}  // namespace compact
