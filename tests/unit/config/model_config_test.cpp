#include "compact/model/config.h"

#include <nlohmann/json.hpp>

#include "config_testing.h"

namespace compact {
namespace {

const std::string kModel = R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_act": "silu",
  "hidden_size": 32,
  "intermediate_size": 88,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "vocab_size": 64,
  "max_position_embeddings": 128,
  "rms_norm_eps": 1e-05,
  "rope_theta": 500000.0,
  "initializer_range": 0.01,
  "tie_word_embeddings": true,
  "bos_token_id": 3,
  "eos_token_id": 4,
  "torch_dtype": "bfloat16"
}
)";

ModelConfig load(std::string_view text) {
  const FileForTest file("model.json", text);
  return load_model_config(file.path());
}

ModelConfig load(std::string_view from, std::string_view to) { return load(replaced(kModel, from, to)); }

std::string refused(std::string_view from, std::string_view to) {
  return input_error_of([&] { load(from, to); });
}

TEST(ModelConfig, ReadsHuggingFaceKeys) {
  const ModelConfig c = load(kModel);
  EXPECT_EQ(c.vocab_size, 64);
  EXPECT_EQ(c.hidden_size, 32);
  EXPECT_EQ(c.intermediate_size, 88);
  EXPECT_EQ(c.layers, 2);
  EXPECT_EQ(c.heads, 4);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.max_positions, 128);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_EQ(c.rope_theta, 500000);
  EXPECT_EQ(c.initializer_range, 0.01);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.bos_token_id, 3);
  EXPECT_EQ(c.eos_token_id, 4);
  EXPECT_EQ(c.head_width(), 8);
}

TEST(ModelConfig, ReadsGaloreKeys) {
  const ModelConfig c = load(R"({"architectures": ["LLaMAForCausalLM"], "bos_token_id": 0, "eos_token_id": 1,
    "hidden_act": "silu", "hidden_size": 512, "intermediate_size": 1376, "initializer_range": 0.02,
    "max_sequence_length": 1024, "model_type": "llama", "num_attention_heads": 8, "num_hidden_layers": 8,
    "pad_token_id": -1, "rms_norm_eps": 1e-06, "transformers_version": "4.28.1", "use_cache": true, "vocab_size": 32000})");
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_EQ(c.max_positions, 1024);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_EQ(c.parameters(), 58073600);
}

TEST(ModelConfig, ToleratesWhatChangesNothing) {
  EXPECT_EQ(load("\"eos_token_id\": 4", "\"eos_token_id\": [7, 8]").eos_token_id, 7);
  EXPECT_EQ(load("\"eos_token_id\": 4", "\"eos_token_id\": null").eos_token_id, -1);
  EXPECT_EQ(load("\"eos_token_id\": 4", "\"eos_token_id\": []").eos_token_id, -1);
  EXPECT_EQ(load("\"eos_token_id\": 4", "\"eos_token_id\": -1").eos_token_id, -1);
  EXPECT_EQ(load("  \"bos_token_id\": 3,\n", "").bos_token_id, 1);
  EXPECT_EQ(load("\"num_key_value_heads\": 2", "\"num_key_value_heads\": null").kv_heads, 4);
  EXPECT_EQ(load("\"rope_theta\": 500000.0",
                 "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 7e5}")
                .rope_theta,
            7e5);
  for (const char* key :
       {"\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"default\"}", "\"head_dim\": 8",
        "\"head_dim\": null", "\"attention_bias\": false", "\"attention_dropout\": 0.0",
        "\"whatever\": {\"a\": [1, {}]}", "\"sliding_window\": null", "\"pretraining_tp\": 1"}) {
    EXPECT_EQ(load("\"torch_dtype\": \"bfloat16\"", key), load(kModel)) << key;
  }
}

TEST(ModelConfig, RefusesOtherNetworks) {
  expect_words(refused("\"llama\"", "\"gpt2\""), {"model.json line 3", "model_type", "\"gpt2\"", "llama"});
  expect_words(refused("LlamaForCausalLM", "GPT2LMHeadModel"), {"architectures", "GPT2LMHeadModel"});
  expect_words(refused("\"silu\"", "\"gelu\""), {"line 4", "hidden_act", "gelu", "silu"});
  const auto with = [](const std::string& key) { return refused("\"torch_dtype\": \"bfloat16\"", key); };
  expect_words(with("\"attention_bias\": true"), {"attention_bias", "true"});
  expect_words(with("\"mlp_bias\": true"), {"mlp_bias", "true"});
  expect_words(with("\"mlp_bias\": 1"), {"mlp_bias is 1"});
  expect_words(with("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}"), {"rope_scaling", "linear"});
  expect_words(with("\"rope_scaling\": {\"factor\": 2}"), {"rope_scaling", "not offered"});
  expect_words(with("\"rope_parameters\": {\"rope_type\": \"llama3\"}"), {"rope_parameters", "llama3"});
  expect_words(with("\"head_dim\": 16"), {"head_dim is 16", "= 8"});
  expect_words(with("\"attention_dropout\": 0.1"), {"attention_dropout", "0.1"});
  expect_words(with("\"partial_rotary_factor\": 0.5"), {"partial_rotary_factor", "0.5"});
  expect_words(with("\"sliding_window\": 4096"), {"sliding_window", "4096"});
}

TEST(ModelConfig, RefusesWidthsThatDoNotFit) {
  expect_words(refused("\"hidden_size\": 32", "\"hidden_size\": 30"),
               {"model.json", "hidden_size 30", "num_attention_heads 4"});
  expect_words(refused("\"hidden_size\": 32", "\"hidden_size\": 36"), {"9 wide", "even"});
  expect_words(refused("\"num_attention_heads\": 4", "\"num_attention_heads\": 32"), {"1 wide", "head"});
  expect_words(refused("\"num_attention_heads\": 4", "\"num_attention_heads\": 0"),
               {"num_attention_heads is 0"});
  expect_words(refused("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"),
               {"num_key_value_heads 3"});
  expect_words(refused("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 8"),
               {"num_key_value_heads 8"});
}

TEST(ModelConfig, RefusesMissingAndWrongValues) {
  expect_words(refused("  \"num_hidden_layers\": 2,\n", ""), {"model.json", "num_hidden_layers", "missing"});
  expect_words(refused("\"vocab_size\": 64", "\"vocab_size\": -1"), {"line 10", "vocab_size is -1"});
  expect_words(refused("\"vocab_size\": 64", "\"vocab_size\": 1e12"), {"vocab_size is 1e12"});
  expect_words(refused("\"vocab_size\": 64", "\"vocab_size\": \"64\""), {"vocab_size is \"64\""});
  expect_words(refused("\"vocab_size\": 64", "\"vocab_size\": null"), {"vocab_size is null"});
  expect_words(refused("1e-05", "0"), {"rms_norm_eps is 0"});
  expect_words(refused("500000.0", "-1"), {"rope_theta is -1"});
  expect_words(refused("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": \"yes\""),
               {"tie_word_embeddings"});
  expect_words(refused("[\"LlamaForCausalLM\"]", "\"LlamaForCausalLM\""), {"architectures", "list"});
  expect_words(input_error_of([] { load("[]"); }), {"model.json", "braces"});
  expect_words(input_error_of([] { load_model_config("/no/such/model.json"); }), {"/no/such/model.json"});
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"hidden_size\":";
  expect_words(input_error_of([&] { load(deep); }), {"model.json", "nested"});
}

TEST(ModelConfig, ExportReadsBack) {
  ModelConfig c = load(kModel);
  const auto round_trip = [](const ModelConfig& config) {
    return load(hugging_face_config(config, "float32"));
  };
  EXPECT_EQ(round_trip(c), c);
  c.bos_token_id = c.eos_token_id = -1;
  c.max_positions = 0;
  c.tie_word_embeddings = false;
  EXPECT_EQ(round_trip(c), c);
}

TEST(ModelConfig, ExportIsWhatTransformersExpects) {
  const nlohmann::json j = nlohmann::json::parse(hugging_face_config(load(kModel), "bfloat16"));
  EXPECT_EQ(j["architectures"], nlohmann::json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(j["model_type"], "llama");
  EXPECT_EQ(j["hidden_act"], "silu");
  EXPECT_EQ(j["torch_dtype"], "bfloat16");
  EXPECT_EQ(j["num_key_value_heads"], 2);
  EXPECT_EQ(j["rms_norm_eps"], 1e-5);
  EXPECT_TRUE(j["rope_theta"].is_number_float());
  EXPECT_EQ(j["rope_theta"], 500000.0);
  EXPECT_EQ(j["tie_word_embeddings"], true);
  EXPECT_EQ(j["attention_bias"], false);
  EXPECT_EQ(j["max_position_embeddings"], 128);
}

TEST(ModelConfig, ParameterCounts) {
  const std::string path = COMPACT_SOURCE_DIR "/../shared/cases/numeric/parameter_counts.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const nlohmann::json file = nlohmann::json::parse(std::ifstream(path));
  for (const auto& row : file["expected"]["rows"]) {
    ModelConfig c;
    c.hidden_size = row["hidden"];
    c.intermediate_size = row["mlp"];
    c.layers = row["layers"];
    c.heads = row["heads"];
    c.kv_heads = row["kv_heads"];
    c.vocab_size = row["vocabulary"];
    c.tie_word_embeddings = row["tied"];
    EXPECT_EQ(c.parameters(), row["parameters"]) << row["name"];
  }
}

}  // namespace
}  // namespace compact
