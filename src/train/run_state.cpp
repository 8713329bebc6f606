#include "compact/train/run_state.h"

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "compact/core/error.h"
#include "compact/io/checkpoint.h"
#include "compact/io/file.h"
#include "compact/memory/host_access.h"
#include "compact/model/weights_file.h"

namespace compact {

namespace {

constexpr int kStateVersion = 1;

std::string state_json(const RunConfig& run, const RunState& s, const std::string& fingerprint) {
  nlohmann::ordered_json j;
  j["format"] = "compact run state";
  j["version"] = kStateVersion;
  j["step"] = s.step;
  j["tokens"] = s.tokens;
  j["adam_exponent"] = s.exponent;
  j["adam_exponent_at_window"] = s.window_start;
  j["loader"] = {{"sample", s.sample}};
  j["guard"] = {{"skipped_in_row", s.skipped_in_row}, {"skipped", s.skipped}};
  j["seed"] = run.seed;
  j["data"] = fingerprint;
  j["config"] = nlohmann::ordered_json::parse(resolved_json(run));
  return j.dump(2) + "\n";
}

struct ReadState {
  RunState state;
  RunConfig config;
  std::string fingerprint;
};

ReadState read_state(const std::string& path) {
  const nlohmann::json j = nlohmann::json::parse(read_text(path), nullptr, false);
  if (!j.is_object()) input_error("{}: not a JSON object", path);
  ReadState r;
  try {
    if (j.at("version").get<int>() != kStateVersion)
      input_error("{}: version {} is not the version {} that this program reads", path,
                  j.at("version").dump(), kStateVersion);
    r.state.step = j.at("step").get<std::int64_t>();
    r.state.tokens = j.at("tokens").get<std::int64_t>();
    r.state.exponent = j.at("adam_exponent").get<std::int64_t>();
    // Version 1 files without it were written when nothing depended on it.
    r.state.window_start = j.value("adam_exponent_at_window", std::int64_t{0});
    r.state.sample = j.at("loader").at("sample").get<std::int64_t>();
    r.state.skipped_in_row = j.at("guard").at("skipped_in_row").get<std::int64_t>();
    r.state.skipped = j.at("guard").at("skipped").get<std::int64_t>();
    const RunState& s = r.state;
    if (s.step < 0 || s.tokens < 0 || s.sample < 0 || s.window_start < 0 || s.exponent < s.window_start ||
        s.exponent > s.step || s.skipped_in_row < 0 || s.skipped < s.skipped_in_row)
      input_error("{}: counts that cannot be ({} steps, {} updates); the file is damaged", path, s.step,
                  s.exponent);
    r.fingerprint = j.at("data").get<std::string>();
    r.config = parse_run_config(j.at("config").dump(), path, kUnknownRanks);
  } catch (const nlohmann::json::exception&) {
    input_error("{}: a key is missing or of the wrong type", path);
  }
  return r;
}

void check_config(const RunConfig& was, const RunConfig& now, const std::string& folder) {
  for (const ConfigDifference& d : compare_configs(was, now)) {
    if (d.may_change) continue;
    if (d.key == "train.steps" && now.train.steps > was.train.steps) continue;
    if (d.key == "train.steps")
      input_error("--resume: train.steps is {} now and was {} when {} was written; it may grow, not shrink",
                  d.now, d.was, folder);
    input_error(
        "--resume: {} is {} now and was {} when {} was written; a resumed run may not change it. Put the old "
        "value "
        "back, or start a new run with init_from",
        d.key, d.now, d.was, folder);
  }
}

void check_model(const ModelConfig& was, const ModelConfig& now, const std::string& folder) {
  const auto same = [&](const char* key, auto a, auto b) {
    if (a != b)
      input_error("--resume: the model's {} is {} now and {} in {}; a resumed run keeps its model", key, b, a,
                  folder);
  };
  same("vocab_size", was.vocab_size, now.vocab_size);
  same("hidden_size", was.hidden_size, now.hidden_size);
  same("intermediate_size", was.intermediate_size, now.intermediate_size);
  same("num_hidden_layers", was.layers, now.layers);
  same("num_attention_heads", was.heads, now.heads);
  same("num_key_value_heads", was.kv_heads, now.kv_heads);
  same("rms_norm_eps", was.rms_norm_eps, now.rms_norm_eps);
  same("rope_theta", was.rope_theta, now.rope_theta);
  same("tie_word_embeddings", was.tie_word_embeddings, now.tie_word_embeddings);
}

}  // namespace

std::string data_fingerprint(const Dataset& dataset) {
  std::string text;
  for (const auto& shard : dataset.shards) {
    if (!text.empty()) text += ' ';
    text += std::to_string(shard->tokens());
    if (!dataset.manifest) continue;
    const std::string name = std::filesystem::path(shard->path()).filename().string();
    for (const DataManifest::Entry& entry : dataset.manifest->shards)
      if (entry.file == name) text += ":" + entry.xxh3;
  }
  return text;
}

void save_run(Engine& engine, const RunConfig& run, const RunState& state, const std::string& fingerprint,
              const std::string& tokenizer_file, const HostReader& read) {
  CheckpointContents contents;
  contents.step = state.step;
  contents.config_json =
      hugging_face_config(engine.model().config(), run.precision == "bf16" ? "bfloat16" : "float32");
  contents.weights = engine.model().named_weights();
  contents.optimizer = engine.optimizer().states();
  contents.state_json = state_json(run, state, fingerprint);
  contents.tokenizer_file = tokenizer_file;
  HostAccess host(engine.context().queue);
  contents.read = read ? read : [&host](const NamedTensor& t) {
    require(t.whole(), "save_run", "needs a reader for what is not all here");
    return host.read(t.data);
  };
  write_checkpoint(run.train.out_dir + "/checkpoints/" + checkpoint_name(state.step), contents);
  retain_checkpoints(run.train.out_dir, run.train.keep);
}

Resumed find_resume(const RunConfig& run, const ModelConfig& model, const std::string& fingerprint,
                    const std::function<void(const std::string&)>& warn) {
  const std::string& out = run.train.out_dir;
  const std::vector<std::string> found =
      list_checkpoints(out, [&](const std::string& path, const std::string& why) {
        warn(fmt::format("{} is passed over: {}", path, why));
      });
  if (found.empty())
    input_error("--resume: train.out_dir \"{}\" holds no complete checkpoint; start without --resume{}", out,
                std::filesystem::exists(out) ? " in another out_dir" : "");
  Resumed r;
  r.folder = found.back();
  ReadState read;
  try {
    for (const char* file : {"config.json", "model.safetensors", "optimizer.safetensors", "state.json"})
      if (!std::filesystem::exists(r.folder + "/" + file))
        input_error("{}/{}: the file is missing", r.folder, file);
    verify_checkpoint(r.folder, true);
    read = read_state(r.folder + "/state.json");
  } catch (const InputError& damage) {
    if (found.size() == 1) input_error("{}; the run has no older checkpoint to go on from", damage.what());
    input_error("{}; to go on from {}, move {} away", damage.what(), found[found.size() - 2], r.folder);
  }
  r.state = read.state;
  r.config = read.config;
  check_config(read.config, run, r.folder);
  check_model(load_model_config(r.folder + "/config.json"), model, r.folder);
  if (read.fingerprint != fingerprint)
    input_error(
        "--resume: data.train \"{}\" is not the data that {} was trained on (shards of {} tokens now, {} "
        "then); give "
        "the same shards",
        run.data.train, r.folder, fingerprint, read.fingerprint);
  return r;
}

void restore(Engine& engine, const Resumed& from) {
  HostAccess host(engine.context().queue);
  load_weights(from.folder, engine.model().config(), engine.model().named_weights(), host);
  const SafetensorsReader optimizer(from.folder + "/optimizer.safetensors");
  const std::vector<NamedTensor> states = engine.optimizer().states();
  for (const NamedTensor& state : states) {
    if (!optimizer.has(state.name))
      input_error("{}: no tensor {}; it was written by another optimizer", optimizer.path(), state.name);
    NamedTensor own = state;
    own.data = host.begin_write(state.data);
    optimizer.read(own);
    host.end_write(state.data);
  }
  if (optimizer.tensors().size() != states.size())
    input_error("{}: {} tensors, expected {}; it was written by another optimizer", optimizer.path(),
                optimizer.tensors().size(), states.size());
  engine.set_exponents(from.state.exponent, from.state.window_start);
}

}  // namespace compact
