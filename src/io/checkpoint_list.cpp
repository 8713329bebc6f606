#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "checkpoint_names.h"
#include "compact/core/error.h"
#include "compact/io/checkpoint.h"
#include "compact/io/file.h"

namespace compact {

namespace fs = std::filesystem;

std::vector<std::string> list_checkpoints(const std::string& run_folder,
                                          const std::function<void(std::string, std::string)>& passed_over) {
  const fs::path folder = without_slash(run_folder) / "checkpoints";
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return {};
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    const auto step = step_of_checkpoint_name(path.filename().string());
    if (!step) continue;
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      passed_over(path.string(), "is no folder");
    } else if (!fs::exists(path / "MANIFEST.json", ignored)) {
      passed_over(path.string(), "has no MANIFEST.json, so it was not written to its end");
    } else {
      found.emplace_back(*step, path.string());
    }
  }
  if (error) input_error("cannot list {}: {}", folder.string(), error.message());
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

void retain_checkpoints(const std::string& run_folder, std::int64_t keep) {
  if (keep <= 0) return;
  const std::vector<std::string> all =
      list_checkpoints(run_folder, [](const std::string&, const std::string&) {});
  const auto count = static_cast<std::int64_t>(all.size());
  if (count <= keep) return;
  try {
    verify_checkpoint(all.back(), true);
  } catch (const InputError& e) {
    run_error("the newest checkpoint does not verify, so no older one is removed: {}", e.what());
  }
  for (std::int64_t i = 0; i < count - keep; ++i) {
    const std::string& path = all[static_cast<std::size_t>(i)];
    // Renamed first: a run killed while files are removed must not leave a folder that looks complete.
    const std::string leaving = path + ".tmp";
    std::error_code error;
    fs::remove_all(leaving, error);
    if (!error) fs::rename(path, leaving, error);
    if (!error) fs::remove_all(leaving, error);
    if (error) run_error("cannot remove the old checkpoint {}: {}", path, error.message());
  }
}

void require_model_folder(const std::string& folder) {
  const fs::path path = folder;
  std::error_code ignored;
  const auto has = [&](const char* name) { return fs::exists(path / name, ignored); };
  if (!fs::exists(path, ignored)) input_error("{}: there is no such folder", folder);
  if (!fs::is_directory(path, ignored))
    input_error("{}: is a file, a folder with config.json and model.safetensors is needed", folder);
  if (!has("config.json")) input_error("{}: has no config.json, so it is no model folder", folder);
  if (has("model.safetensors")) return;
  if (has("model.safetensors.index.json"))
    input_error(
        "{}: its weights are split into several files, one model.safetensors is needed (save_pretrained of "
        "transformers with a large max_shard_size writes it)",
        folder);
  if (has("pytorch_model.bin") || has("pytorch_model.bin.index.json"))
    input_error(
        "{}: has only pickled weights (pytorch_model.bin), which are not read because loading them can run "
        "code; convert them to model.safetensors (save_pretrained of transformers with "
        "safe_serialization=True)",
        folder);
  input_error("{}: has no model.safetensors", folder);
}

std::string resolve_checkpoint(const std::string& path) {
  std::error_code ignored;
  const fs::path folder = without_slash(path);
  if (fs::is_directory(folder / "checkpoints", ignored) &&
      !fs::exists(folder / "model.safetensors", ignored)) {
    const auto all = list_checkpoints(path, [](const std::string& which, const std::string& reason) {
      fmt::print(stderr, "passed over {}: it {}\n", which, reason);
    });
    if (all.empty()) input_error("{}: this run has no complete checkpoint", path);
    fmt::print(stderr, "using checkpoint {}\n", all.back());
    verify_checkpoint(all.back(), true);
    return all.back();
  }
  require_model_folder(folder.string());
  // A folder of other programs has no manifest to hold it to.
  if (fs::exists(folder / "MANIFEST.json", ignored)) verify_checkpoint(folder.string(), true);
  return folder.string();
}

}  // namespace compact
