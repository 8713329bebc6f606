#include "compact/core/error.h"
#include "run_schema.h"

namespace compact {
namespace {

std::string default_text(const RunKey& key) {
  if (key.required) return "required";
  return run_key_json(key, RunConfig{});
}

std::string resume_text(const RunKey& key) {
  if (key.path == "train.steps") return "larger";
  return key.may_change ? "yes" : "no";
}

std::string when_text(const RunKey& key) {
  if (key.when.of.empty()) return "";
  return fmt::format(" (only with {} {})", key.when.of, either_of(key.when.values));
}

void add_table(std::string& text, std::string_view section) {
  text += "| key | what | values | default | resume |\n|---|---|---|---|---|\n";
  for (const RunKey& key : run_keys()) {
    if (key.section() != section) continue;
    text += fmt::format("| `{}` | {}{} | {} | `{}` | {} |\n", key.path, key.about, when_text(key),
                        accepted_text(key), default_text(key), resume_text(key));
  }
}

constexpr std::string_view kIntroduction = R"(# The run file

`compact train RUN.json [key.path=value ...]` and `compact plan` read it. It is strict JSON: no comments, no trailing
commas, each key once; a key that does not exist is an error that names the nearest one. Paths are relative to the
working directory. `config.resolved.json` in the run folder shows every key with the value that the run used.

An override `key.path=value` on the command line replaces what the file says. The value is JSON where it parses as
JSON, text otherwise: `optimizer.lr=2e-3 'optimizer.betas=[0.8, 0.95]' optimizer.clip_norm=null schedule.warmup=5%`.

Lengths of training are steps (`100` or `"100s"`), tokens (`"1e6t"`) or a part of the run (`"10%"`), rounded down to
whole steps. The column *resume* says whether `--resume` accepts another value than the run began with; `train.steps`
may only grow. Where files may move, their contents must still be the same.

This page is written from the description of the keys in `src/train/run_schema.cpp`; a test holds the two together.
)";

constexpr std::string_view kModelFile = R"(
## The model file

`model` names a JSON file with the keys of a Hugging Face `config.json` of a LLaMA model; GaLore's model files are read
as they are. Keys that are not listed are passed over, except that what would make another network is refused: another
`model_type` or architecture, `hidden_act` other than `silu`, biases, dropout, rope scaling, a sliding window.

| key | what | default |
|---|---|---|
| `vocab_size` | vocabulary | required |
| `hidden_size` | width of the residual stream | required |
| `intermediate_size` | width of the MLP | required |
| `num_hidden_layers` | blocks | required |
| `num_attention_heads` | query heads; `hidden_size` divided by it must be whole and even | required |
| `num_key_value_heads` | key and value heads; divides the query heads | as many as query heads |
| `max_position_embeddings` or `max_sequence_length` | longest sequence the model is meant for | no limit |
| `rms_norm_eps` | added to the mean square in RMSNorm | `1e-6` |
| `rope_theta` | base of the rotary embeddings | `10000` |
| `initializer_range` | standard deviation of the random weights | `0.02` |
| `tie_word_embeddings` | the head is the embedding | `false` |
| `bos_token_id`, `eos_token_id` | ids of the control symbols | `1`, `2` |
)";

}  // namespace

std::string config_reference_markdown() {
  std::string text(kIntroduction);
  text += "\n## Top level\n\n";
  add_table(text, "");
  for (const std::string_view section : run_sections()) {
    text += fmt::format("\n## {}\n\n{}\n\n", section, about_section(section));
    add_table(text, section);
  }
  return text + std::string(kModelFile);
}

std::string config_help() {
  std::string text = "Keys of the run file, with their defaults (docs/config.md has more):\n";
  for (const RunKey& key : run_keys()) {
    text += fmt::format("  {:<26} {}{} [{}]\n", key.path, key.about, when_text(key), default_text(key));
  }
  return text;
}

}  // namespace compact
