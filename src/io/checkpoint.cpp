#include "compact/io/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint_names.h"
#include "compact/core/error.h"
#include "compact/io/file.h"
#include "safetensors_writer.h"

namespace compact {

namespace fs = std::filesystem;

namespace {

void remove_folder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) run_error("cannot remove {}: {}", path.string(), error.message());
}

/// What a killed run left half written or half removed beside `folder`, which is about to be written.
void remove_stale(const fs::path& folder, const fs::path& temporary) {
  remove_folder(temporary);
  if (!step_of_checkpoint_name(folder.filename().string())) return;
  std::error_code error;
  for (fs::directory_iterator entry(parent_of(folder), error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() == ".tmp" && step_of_checkpoint_name(path.stem().string())) remove_folder(path);
  }
  if (error) run_error("cannot list {}: {}", parent_of(folder).string(), error.message());
}

FileDigest write_file(const fs::path& path, const std::string& text) {
  HashedFile file(path.string());
  file.write(text);
  return file.close();
}

/// Writes all files of a checkpoint into `folder`, MANIFEST.json last.
void write_files(const fs::path& folder, const CheckpointContents& contents) {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  const auto add = [&files](const std::string& name, const FileDigest& digest) {
    files[name] = {{"bytes", digest.bytes}, {"xxh3", digest.xxh3}};
  };
  // transformers asks for the key "format" before it loads a file.
  const std::map<std::string, std::string> metadata = {{"format", "pt"}};
  add("config.json", write_file(folder / "config.json", contents.config_json));
  if (!contents.tokenizer_file.empty()) {
    const std::string name = fs::path(contents.tokenizer_file).filename().string();
    if (is_checkpoint_file(name))
      run_error("the tokenizer {} has the name of a checkpoint's own file; rename it",
                contents.tokenizer_file);
    add(name, copy_file(contents.tokenizer_file, (folder / name).string()));
  }
  const std::string model = (folder / "model.safetensors").string();
  add("model.safetensors", write_hashed_safetensors(model, contents.weights, metadata, contents.read));
  if (!contents.optimizer.empty()) {
    const std::string optimizer = (folder / "optimizer.safetensors").string();
    add("optimizer.safetensors",
        write_hashed_safetensors(optimizer, contents.optimizer, metadata, contents.read));
  }
  if (!contents.state_json.empty()) add("state.json", write_file(folder / "state.json", contents.state_json));
  const nlohmann::ordered_json manifest = {
      {"format", manifest_format}, {"version", manifest_version}, {"step", contents.step}, {"files", files}};
  write_file(folder / "MANIFEST.json", manifest.dump(2) + "\n");
  sync_folder(folder.string());
}

/// Puts `temporary` in the place of `folder`; an older folder of that name is removed after that.
void put_in_place(const fs::path& temporary, const fs::path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) == 0) {
    if (!S_ISDIR(info.st_mode))
      run_error("cannot write the checkpoint {}: a file of that name is in the way", folder.string());
    // One step, so that at no moment there is neither the old nor the new one.
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0)
      run_error("cannot replace {} by {}: {}", folder.string(), temporary.string(), std::strerror(errno));
    sync_folder(parent_of(folder).string());
    remove_folder(temporary);
    return;
  }
  if (::rename(temporary.c_str(), folder.c_str()) != 0)
    run_error("cannot rename {} to {}: {}", temporary.string(), folder.string(), std::strerror(errno));
  sync_folder(parent_of(folder).string());
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("step_{:08}", step); }

void write_checkpoint(const std::string& folder, const CheckpointContents& contents) {
  const fs::path target = without_slash(folder);
  fs::path temporary = target;
  temporary += ".tmp";
  make_folders(parent_of(target).string());
  remove_stale(target, temporary);
  try {
    make_folders(temporary.string());
    write_files(temporary, contents);
    put_in_place(temporary, target);
  } catch (...) {
    std::error_code ignored;  // the first failure is the one to tell
    fs::remove_all(temporary, ignored);
    try {
      throw;
    } catch (const InputError& e) {  // the tokenizer is gone: the run's input was fine when it began
      throw RunError(e.what());
    }
  }
}

}  // namespace compact
