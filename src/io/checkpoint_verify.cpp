#include <algorithm>
#include <filesystem>

#include "checkpoint_names.h"
#include "compact/core/error.h"
#include "compact/io/checkpoint.h"
#include "compact/io/file.h"
#include "compact/io/json.h"

namespace compact {

namespace {

std::string file_in(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

bool is_hash(const std::string& text) {
  return text.size() == 16 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

/// The value of `key`, which must be there.
const JsonValue& member(const JsonValue& object, const char* key) {
  const JsonValue* found = object.kind == JsonValue::Kind::Object ? object.find(key) : nullptr;
  if (found == nullptr)
    input_error("{}: the key \"{}\" is missing; the manifest is damaged", object.where(), key);
  return *found;
}

CheckpointManifest::File read_entry(const std::string& name, const JsonValue& entry) {
  // Names come from a file: they must not lead out of the folder, nor write to the terminal what they like.
  const bool plain = std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (!plain || name.empty() || name == "." || name == "..")
    input_error("{}: a file has a name that is no plain file name", entry.where());
  const std::string& hash = json_text(member(entry, "xxh3"), "xxh3");
  if (!is_hash(hash)) input_error("{}: the hash of {} is not 16 hexadecimal digits", entry.where(), name);
  return {name, json_integer(member(entry, "bytes"), "bytes", {.lowest = 0}), hash};
}

}  // namespace

CheckpointManifest read_checkpoint_manifest(const std::string& folder) {
  const std::string path = file_in(folder, "MANIFEST.json");
  const JsonValue root = parse_json(read_text(path, 1 << 20), path);
  if (json_text(member(root, "format"), "format") != manifest_format)
    input_error("{}: is no manifest of a checkpoint, its \"format\" should be \"{}\"", path, manifest_format);
  if (const std::int64_t version = json_integer(member(root, "version"), "version", {});
      version != manifest_version)
    input_error("{}: has version {}, this program reads version {}", path, version, manifest_version);
  CheckpointManifest manifest;
  manifest.step = json_integer(member(root, "step"), "step", {.lowest = 0});
  const JsonValue& files = member(root, "files");
  for (std::size_t i = 0; i < files.names.size(); ++i)
    manifest.files.push_back(read_entry(files.names[i], files.items[i]));
  for (const char* needed : {"config.json", "model.safetensors"})
    if (std::none_of(manifest.files.begin(), manifest.files.end(),
                     [&](const auto& f) { return f.name == needed; }))
      input_error("{}: does not list {}; the manifest is damaged", path, needed);
  return manifest;
}

void verify_checkpoint(const std::string& folder, bool hashes) {
  for (const auto& [name, bytes, xxh3] : read_checkpoint_manifest(folder).files) {
    const std::string path = file_in(folder, name);
    std::error_code error;
    if (!std::filesystem::exists(path, error))
      input_error("{}: is missing, but MANIFEST.json lists it; the checkpoint is incomplete", path);
    const std::int64_t found = InputFile(path).size();
    if (found != bytes)
      input_error("{}: has {} bytes, MANIFEST.json says {}; the checkpoint is damaged", path, found, bytes);
    if (!hashes) continue;
    if (const std::string hash = xxh3_of_file(path); hash != xxh3)
      input_error("{}: has the hash {}, MANIFEST.json says {}; the checkpoint is damaged", path, hash, xxh3);
  }
}

}  // namespace compact
