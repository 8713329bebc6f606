#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "commands.h"
#include "compact/core/error.h"
#include "compact/io/checkpoint.h"
#include "compact/io/file.h"
#include "inspect_parts.h"

namespace compact {

namespace {

namespace fs = std::filesystem;
using inspect::line;

/// The tokens and what was trained how, from state.json.
void state_lines(const std::string& path) {
  const JsonValue state = parse_json(read_text(path), path);
  if (const JsonValue* tokens = state.find("tokens"))
    line("tokens", inspect::grouped(json_integer(*tokens, "tokens", {.lowest = 0})));
  if (const JsonValue* config = state.find("config");
      config != nullptr && config->kind == JsonValue::Kind::Object)
    inspect::json_lines(*config);
}

void inspect_model_folder(const fs::path& folder) {
  const bool checkpoint = fs::exists(folder / "MANIFEST.json");
  fmt::print("{}: {}\n", folder.string(), checkpoint ? "checkpoint" : "model folder");
  inspect::model_lines(folder);
  if (fs::exists(folder / "state.json")) state_lines((folder / "state.json").string());
  if (!checkpoint) {
    line("files", "no MANIFEST.json, so they cannot be checked");
    return;
  }
  inspect::manifest_lines(read_checkpoint_manifest(folder.string()));
  verify_checkpoint(folder.string(), true);
  line("manifest", "sizes and hashes hold");
}

void inspect_run_folder(const fs::path& folder) {
  fmt::print("{}: run folder\n", folder.string());
  if (const fs::path config = folder / "config.resolved.json"; fs::exists(config))
    inspect::json_lines(parse_json(read_text(config.string()), config.string()));
  if (const fs::path metrics = folder / "metrics.jsonl"; fs::exists(metrics))
    inspect::metrics_lines(metrics.string());
  const auto checkpoints =
      list_checkpoints(folder.string(), [](const std::string& path, const std::string& reason) {
        line("passed over", fmt::format("{}: {}", fs::path(path).filename().string(), reason));
      });
  const std::size_t first = checkpoints.size() > 6 ? checkpoints.size() - 6 : 0;
  if (first > 0) line("checkpoint", fmt::format("{} older ones", first));
  for (std::size_t i = first; i < checkpoints.size(); ++i)
    line("checkpoint", fs::path(checkpoints[i]).filename().string());
  if (checkpoints.empty()) line("checkpoint", "none yet");
}

void inspect_folder(const std::string& path) {
  const fs::path folder = path;
  if (fs::exists(folder / "model.safetensors") || fs::exists(folder / "MANIFEST.json")) {
    inspect_model_folder(folder);
  } else if (fs::exists(folder / "config.resolved.json") || fs::exists(folder / "metrics.jsonl") ||
             fs::is_directory(folder / "checkpoints")) {
    inspect_run_folder(folder);
  } else {
    input_error(
        "{}: is neither a model folder or checkpoint (model.safetensors) nor a run folder (metrics.jsonl)",
        path);
  }
}

bool starts_as_shard(const std::string& path) {
  const InputFile file(path);
  std::int32_t magic = 0;
  if (file.size() < static_cast<std::int64_t>(sizeof magic)) return false;
  file.read(0, &magic, sizeof magic);
  return magic == 20240520 || magic == 20240801;
}

void inspect_path(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return inspect_folder(path);
  // By name first: a damaged file is still called what it should be.
  const std::string ending = fs::path(path).extension().string();
  if (ending == ".safetensors") return inspect::safetensors(path);
  if (ending == ".bin" || starts_as_shard(path)) return inspect::token_shard(path);
  if (ending == ".json") return inspect::json_file(path);
  if (ending == ".jsonl") return inspect::metrics(path);
  if (ending == ".model") return inspect::tokenizer(path);
  if (ending == ".log" || ending == ".vocab") return inspect::text_file(path);
  input_error(
      "{}: is no kind of file that is known here (token shard, safetensors, JSON, metrics, tokenizer model, "
      "log, or a "
      "folder of a checkpoint, model or run)",
      path);
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("inspect", "Show what a file or folder holds, in short, and check it");
  const auto path = std::make_shared<std::string>();
  command
      ->add_option("FILE_OR_FOLDER", *path,
                   "token shard, its json, safetensors, metrics, tokenizer, checkpoint, model or run folder")
      ->required();
  command->callback([path] { inspect_path(*path); });
}

}  // namespace compact
