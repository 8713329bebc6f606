#include <algorithm>
#include <filesystem>

#include "checkpoint_names.h"
#include "compact/core/error.h"
#include "compact/io/checkpoint.h"
#include "compact/io/file.h"
#include "compact/io/safetensors.h"
#include "hashed_file.h"

namespace compact {

namespace fs = std::filesystem;

namespace {

/// The files that belong to the model, with the hashes that the manifest knows (empty where there is no
/// manifest).
std::vector<CheckpointManifest::File> model_files(const fs::path& folder) {
  std::vector<CheckpointManifest::File> files;
  if (fs::exists(folder / "MANIFEST.json")) {
    for (auto& file : read_checkpoint_manifest(folder.string()).files)
      if (file.name != "optimizer.safetensors" && file.name != "state.json") files.push_back(std::move(file));
    return files;
  }
  for (const char* name :
       {"config.json", "model.safetensors", "tokenizer.model", "spiece.model", "tokenizer.json",
        "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"})
    if (fs::exists(folder / name)) files.push_back({name, 0, ""});
  return files;
}

}  // namespace

std::vector<std::string> export_checkpoint(const std::string& checkpoint, const std::string& out) {
  const fs::path from = resolve_checkpoint(checkpoint), to = without_slash(out);
  const auto files = model_files(from);
  SafetensorsReader((from / "model.safetensors").string());  // the header is whole

  std::error_code error;
  const bool existed = fs::exists(to, error);
  if (existed && !fs::is_directory(to, error))
    input_error("{}: is a file, a new or empty folder is needed", out);
  if (existed && !fs::is_empty(to, error) && !error)
    input_error("{}: is not empty, and nothing in it is overwritten; give a new or empty folder", out);
  make_folders(to.string());
  std::vector<std::string> names;
  try {
    for (const auto& file : files) {
      names.push_back(file.name);
      const FileDigest copied = copy_file((from / file.name).string(), (to / file.name).string());
      if (!file.xxh3.empty() && copied.xxh3 != file.xxh3)
        run_error("{}: changed while it was copied", (from / file.name).string());
    }
    sync_folder(to.string());
    sync_folder(parent_of(to).string());
  } catch (...) {
    for (const std::string& name : names) fs::remove(to / name, error);
    if (!existed) fs::remove(to, error);
    throw;
  }
  return names;
}

}  // namespace compact
