#include "compact/model/config.h"

#include <algorithm>
#include <cctype>

#include "compact/core/error.h"
#include "compact/io/file.h"
#include "compact/io/json.h"

namespace compact {
namespace {

constexpr std::int64_t kMaxFileBytes = 4 << 20;

// A value that is there and not null.
const JsonValue* given(const JsonValue& root, std::string_view key) {
  const JsonValue* value = root.find(key);
  return value && value->kind != JsonValue::Kind::Null ? value : nullptr;
}

std::int64_t size_key(const JsonValue& root, std::string_view key, std::int64_t highest) {
  const JsonValue* value = root.find(key);
  if (!value) input_error("{}: the key {} is missing; a LLaMA model needs it", *root.source, key);
  return json_integer(*value, key, {.lowest = 1, .highest = static_cast<double>(highest)});
}

double number_key(const JsonValue& root, std::string_view key, double otherwise, const JsonBounds& bounds) {
  const JsonValue* value = given(root, key);
  return value ? json_number(*value, key, bounds) : otherwise;
}

// Token ids of control symbols: a number, a list (the first counts), or none (-1).
std::int64_t token_key(const JsonValue& root, std::string_view key, std::int64_t otherwise) {
  const JsonValue* value = root.find(key);
  if (!value) return otherwise;
  if (value->kind == JsonValue::Kind::List && !value->items.empty()) value = &value->items.front();
  if (value->kind == JsonValue::Kind::Null || value->kind == JsonValue::Kind::List) return -1;
  return std::max<std::int64_t>(-1, json_integer(*value, key, {}));
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

void check_architecture(const JsonValue& root) {
  if (const JsonValue* type = given(root, "model_type")) {
    if (json_text(*type, "model_type") != "llama")
      refuse_json(*type, "model_type", "\"llama\", the one offered");
  }
  const JsonValue* architectures = given(root, "architectures");
  if (!architectures) return;
  if (architectures->kind != JsonValue::Kind::List)
    refuse_json(*architectures, "architectures", "a list of texts");
  for (const JsonValue& name : architectures->items) {
    // GaLore's files write LLaMAForCausalLM.
    if (!lower(json_text(name, "architectures")).starts_with("llama")) {
      refuse_json(name, "architectures", "\"LlamaForCausalLM\", the one offered");
    }
  }
}

// Keys whose value would make another network of the same weights' names.
void check_variants(const JsonValue& root) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (const JsonValue* value = given(root, key); value && json_boolean(*value, key)) {
      refuse_json(*value, key, "false: layers with biases are not offered");
    }
  }
  if (const JsonValue* act = given(root, "hidden_act"); act && json_text(*act, "hidden_act") != "silu") {
    refuse_json(*act, "hidden_act", "\"silu\", the one offered");
  }
  if (const JsonValue* drop = given(root, "attention_dropout");
      drop && json_number(*drop, "attention_dropout", {}) != 0) {
    refuse_json(*drop, "attention_dropout", "0: dropout is not offered");
  }
  if (const JsonValue* part = given(root, "partial_rotary_factor");
      part && json_number(*part, "partial_rotary_factor", {}) != 1) {
    refuse_json(*part, "partial_rotary_factor", "1: partial rotary embeddings are not offered");
  }
  if (const JsonValue* window = given(root, "sliding_window")) {
    refuse_json(*window, "sliding_window", "null: attention over a window is not offered");
  }
}

// Newer Hugging Face files hold the base in rope_parameters, older ones in rope_theta; scaling is refused in
// both.
double rope_theta(const JsonValue& root) {
  constexpr double kDefault = 10000.0;
  const JsonBounds above_one{.lowest = 1, .open_low = true};
  double theta = number_key(root, "rope_theta", kDefault, above_one);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const JsonValue* rope = given(root, key);
    if (!rope) continue;
    if (rope->kind != JsonValue::Kind::Object) refuse_json(*rope, key, "null or an object");
    const JsonValue* type = given(*rope, "rope_type");
    if (!type) type = given(*rope, "type");
    if (!type || json_text(*type, key) != "default") {
      refuse_json(type ? *type : *rope, std::string(key) + (type ? ".rope_type" : ""),
                  "null or \"default\": rope scaling is not offered");
    }
    theta = number_key(*rope, "rope_theta", theta, above_one);
  }
  return theta;
}

// Widths that must fit one another.
void check_widths(const JsonValue& root, const ModelConfig& c) {
  const std::string where = root.find("num_attention_heads")->where();
  if (c.hidden_size % c.heads != 0) {
    input_error("{}: hidden_size {} is not a multiple of num_attention_heads {}; change one of the two",
                where, c.hidden_size, c.heads);
  }
  if (c.head_width() % 2 != 0) {
    input_error(
        "{}: each head is {} wide (hidden_size {} / num_attention_heads {}), but rotary embeddings need an "
        "even head width",
        where, c.head_width(), c.hidden_size, c.heads);
  }
  if (c.heads % c.kv_heads != 0) {
    input_error(
        "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}; change one of the two",
        where, c.heads, c.kv_heads);
  }
  if (const JsonValue* width = given(root, "head_dim");
      width && json_integer(*width, "head_dim", {.lowest = 1}) != c.head_width()) {
    refuse_json(*width, "head_dim",
                fmt::format("hidden_size / num_attention_heads = {}; other head widths are not offered",
                            c.head_width()));
  }
}

}  // namespace

std::int64_t ModelConfig::parameters() const {
  const std::int64_t attention = 2 * hidden_size * hidden_size + 2 * hidden_size * kv_width();
  const std::int64_t block = attention + 3 * hidden_size * intermediate_size + 2 * hidden_size;
  return vocab_size * hidden_size * (tie_word_embeddings ? 1 : 2) + layers * block + hidden_size;
}

ModelConfig load_model_config(const std::string& path) {
  return parse_model_config(read_text(path, kMaxFileBytes), path);
}

ModelConfig parse_model_config(std::string_view json_text, const std::string& name) {
  const JsonValue root = parse_json(json_text, name);
  if (root.kind != JsonValue::Kind::Object) {
    input_error(
        "{} holds {}, but a model file is an object in braces (the keys of a Hugging Face config.json)", name,
        root.shown());
  }
  check_architecture(root);
  check_variants(root);
  ModelConfig c;
  c.vocab_size = size_key(root, "vocab_size", 1 << 24);
  c.hidden_size = size_key(root, "hidden_size", 1 << 18);
  c.intermediate_size = size_key(root, "intermediate_size", 1 << 20);
  c.layers = size_key(root, "num_hidden_layers", 4096);
  c.heads = size_key(root, "num_attention_heads", 1 << 16);
  c.kv_heads = given(root, "num_key_value_heads") ? size_key(root, "num_key_value_heads", 1 << 16) : c.heads;
  for (const char* key : {"max_position_embeddings", "max_sequence_length"}) {
    if (c.max_positions == 0 && given(root, key))
      c.max_positions = size_key(root, key, std::int64_t{1} << 31);
  }
  c.rms_norm_eps = number_key(root, "rms_norm_eps", c.rms_norm_eps, {.lowest = 1e-30, .highest = 1});
  c.initializer_range = number_key(root, "initializer_range", c.initializer_range,
                                   {.lowest = 0, .highest = 100, .open_low = true});
  c.rope_theta = rope_theta(root);
  if (const JsonValue* tied = given(root, "tie_word_embeddings")) {
    c.tie_word_embeddings = json_boolean(*tied, "tie_word_embeddings");
  }
  c.bos_token_id = token_key(root, "bos_token_id", c.bos_token_id);
  c.eos_token_id = token_key(root, "eos_token_id", c.eos_token_id);
  check_widths(root, c);
  return c;
}

std::string hugging_face_config(const ModelConfig& c, const std::string& dtype) {
  const auto token = [](std::int64_t id) { return id < 0 ? std::string("null") : std::to_string(id); };
  const auto boolean = [](bool value) { return value ? "true" : "false"; };
  std::string text = "{\n";
  const auto add = [&text](std::string_view key, std::string_view value) {
    text += fmt::format("  \"{}\": {},\n", key, value);
  };
  add("architectures", "[\"LlamaForCausalLM\"]");
  add("attention_bias", "false");
  add("attention_dropout", "0.0");
  add("bos_token_id", token(c.bos_token_id));
  add("eos_token_id", token(c.eos_token_id));
  add("head_dim", std::to_string(c.head_width()));
  add("hidden_act", "\"silu\"");
  add("hidden_size", std::to_string(c.hidden_size));
  add("initializer_range", json_number_text(c.initializer_range));
  add("intermediate_size", std::to_string(c.intermediate_size));
  if (c.max_positions > 0) add("max_position_embeddings", std::to_string(c.max_positions));
  add("mlp_bias", "false");
  add("model_type", "\"llama\"");
  add("num_attention_heads", std::to_string(c.heads));
  add("num_hidden_layers", std::to_string(c.layers));
  add("num_key_value_heads", std::to_string(c.kv_heads));
  add("rms_norm_eps", json_number_text(c.rms_norm_eps));
  add("rope_scaling", "null");
  add("rope_theta", json_number_text(c.rope_theta));
  add("tie_word_embeddings", boolean(c.tie_word_embeddings));
  add("torch_dtype", json_quoted(dtype));
  add("use_cache", "true");
  return text + fmt::format("  \"vocab_size\": {}\n}}\n", c.vocab_size);
}

}  // namespace compact
