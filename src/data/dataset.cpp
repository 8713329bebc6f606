#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "compact/core/error.h"
#include "compact/data/token_shard.h"
#include "compact/io/file.h"

namespace compact {
namespace {

constexpr std::int64_t kHashedBytes = std::int64_t{1} << 30;

std::string name_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }

std::string beside(const std::string& path, const std::string& name) {
  return (std::filesystem::path(path).parent_path() / name).string();
}

// PREFIX.json of a shard PREFIX_train_NNNNNN.bin or PREFIX_val_NNNNNN.bin; empty where the name is another.
std::string manifest_path(const std::string& shard) {
  const std::string name = name_of(shard);
  std::size_t end = std::string::npos;
  for (const char* split : {"_train_", "_val_"}) {
    const std::size_t at = name.rfind(split);
    if (at != name.npos && (end == name.npos || at > end)) end = at;
  }
  return end == name.npos || end == 0 ? "" : beside(shard, name.substr(0, end) + ".json");
}

bool exists(const std::string& path) {
  std::error_code code;
  return std::filesystem::symlink_status(path, code).type() != std::filesystem::file_type::not_found;
}

void scan(const TokenShard& shard, std::int64_t vocab_size) {
  constexpr std::int64_t kBlock = 64 << 10;
  std::vector<std::int32_t> ids(kBlock);
  for (std::int64_t at = 0; at < shard.tokens(); at += kBlock)
    shard.read(at, std::min(kBlock, shard.tokens() - at), ids.data(), vocab_size);
}

// The manifests of several prefixes in one glob must describe the same kind of data.
void check_same_kind(const DataManifest& a, const DataManifest& b) {
  const char* what = nullptr;
  if (a.vocab_size != b.vocab_size || a.tokenizer_xxh3 != b.tokenizer_xxh3) what = "tokenizers";
  if (a.end_of_text != b.end_of_text) what = "end-of-text ids";
  if (a.rows != b.rows || a.row_length != b.row_length || a.padding_id != b.padding_id) what = "layouts";
  if (what) input_error("{} and {} are matched by one glob but have different {}", a.path, b.path, what);
}

const DataManifest::Entry& entry_of(const DataManifest& manifest, const std::string& shard) {
  const std::string name = name_of(shard);
  for (const DataManifest::Entry& e : manifest.shards)
    if (e.file == name) return e;
  input_error("{} is not among the shards that its manifest {} lists; remove it or tokenize again", shard,
              manifest.path);
}

// A listed shard that the glob asks for but that is gone would silently make the data smaller.
void check_none_missing(const DataManifest& manifest, const std::string& glob) {
  for (const DataManifest::Entry& e : manifest.shards) {
    const std::string path = beside(manifest.path, e.file);
    if (::fnmatch(glob.c_str(), path.c_str(), FNM_PATHNAME) == 0 && !exists(path))
      input_error("{} is missing: the manifest {} lists it; tokenize again", path, manifest.path);
  }
}

}  // namespace

std::int64_t Dataset::tokens() const {
  std::int64_t sum = 0;
  for (const auto& shard : shards) sum += shard->tokens();
  return sum;
}

std::string Dataset::tokenizer_path() const {
  if (!manifest) return "";
  const std::string path = beside(manifest->path, manifest->tokenizer_file);
  std::error_code code;
  return std::filesystem::is_regular_file(path, code) ? path : "";
}

Dataset open_dataset(const std::string& glob, const std::string& key, std::int64_t vocab_size) {
  Dataset data;
  data.key = key;
  data.glob = glob;
  const std::vector<std::string> paths = glob_files(glob);
  if (paths.empty()) input_error("{}: no file matches {}; write shards with compact tokenize", key, glob);

  std::map<std::string, DataManifest> manifests;
  std::string without;  // a shard that has no manifest
  for (const std::string& path : paths) {
    data.shards.push_back(std::make_unique<TokenShard>(path));
    const std::string json = manifest_path(path);
    if (json.empty() || !exists(json))
      without = path;
    else if (!manifests.contains(json))
      manifests.emplace(json, read_manifest(json));
  }
  if (manifests.empty()) {
    for (const auto& shard : data.shards) scan(*shard, vocab_size);
    return data;
  }
  if (!without.empty())
    input_error(
        "{}: {} matches {}, which has no manifest, and shards that have one; give them as separate data", key,
        glob, without);

  const DataManifest& first = manifests.begin()->second;
  for (const auto& [path, manifest] : manifests) {
    check_same_kind(first, manifest);
    check_none_missing(manifest, glob);
  }
  if (vocab_size > 0 && first.vocab_size != vocab_size)
    input_error(
        "{}: the data of {} has a vocabulary of {} ids, the model one of {}; tokenize with the model's "
        "tokenizer, or set vocab_size to {}",
        key, first.path, first.vocab_size, vocab_size, first.vocab_size);
  const bool hash = data.tokens() * data.shards[0]->bytes_per_token() <= kHashedBytes;
  for (const auto& shard : data.shards) {
    const DataManifest& manifest = manifests.at(manifest_path(shard->path()));
    const DataManifest::Entry& entry = entry_of(manifest, shard->path());
    if (entry.tokens != shard->tokens())
      input_error("{}: the manifest {} says {} tokens, the shard has {}; tokenize again", shard->path(),
                  manifest.path, entry.tokens, shard->tokens());
    if (!hash) continue;
    const std::string found = xxh3_of_file(shard->path());
    if (found != entry.xxh3)
      input_error(
          "{} was changed after it was written: the manifest {} says XXH3 {}, the shard has {}; tokenize "
          "again",
          shard->path(), manifest.path, entry.xxh3, found);
  }
  data.manifest = first;
  for (const auto& [path, manifest] : manifests)
    if (path != first.path)
      data.manifest->shards.insert(data.manifest->shards.end(), manifest.shards.begin(),
                                   manifest.shards.end());
  return data;
}

}  // namespace compact
