#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compact/io/file.h"

namespace compact {

/// A token shard in llm.c's layout (design, section 5): 256 int32 header (magic 20240520 version 1: uint16
/// tokens; magic 20240801 version 7: uint32 tokens; then the count), then the tokens. Reads are checked.
class TokenShard {
 public:
  /// Checks that it is a regular file, magic, version, count and file size. Throws InputError with path,
  /// offset, expected and found.
  explicit TokenShard(const std::string& path);
  const std::string& path() const { return file_.path(); }
  std::int64_t tokens() const { return tokens_; }
  int bytes_per_token() const { return width_; }
  /// Reads `count` tokens from `first` on, as int32. Each must be below `vocab_size` (0: no check):
  /// InputError with path, position, id and vocabulary.
  void read(std::int64_t first, std::int64_t count, std::int32_t* to, std::int64_t vocab_size) const;

 private:
  InputFile file_;
  std::int64_t tokens_ = 0;
  int width_ = 2;
};

/// <prefix>.json beside the shards.
struct DataManifest {
  std::string path;
  std::int64_t vocab_size = 0;
  std::string tokenizer_file, tokenizer_xxh3;  ///< a copy of the tokenizer beside the manifest, and its hash
  std::int64_t end_of_text = -1;
  bool rows = false;  ///< one document a row of `row_length` tokens; else packed
  std::int64_t row_length = 0;
  std::int64_t padding_id = -1;
  struct Entry {
    std::string file;
    std::int64_t tokens = 0, documents = 0;
    std::string xxh3;
  };
  std::vector<Entry> shards;
};

/// Reads and checks <prefix>.json. Throws InputError with its path and what is wrong.
DataManifest read_manifest(const std::string& path);
/// Writes it to its `path`, atomically. Throws RunError.
void write_manifest(const DataManifest& manifest);

/// All shards of one glob, checked, in the order of their names, with their manifest if there is one.
struct Dataset {
  std::string key, glob;  ///< the setting that named it ("data.train"), and its value, for messages
  std::vector<std::unique_ptr<TokenShard>> shards;
  std::optional<DataManifest> manifest;
  std::int64_t tokens() const;
  /// Path of the tokenizer file that the manifest names, if it lies beside the manifest; else empty.
  std::string tokenizer_path() const;
};

/// Opens the shards that match `glob` for a model of `vocab_size` ids. `key` names the setting in messages
/// ("data.train"). With a manifest: vocabulary sizes must agree, shard sizes always, hashes up to 1 GiB in
/// total. Without: ids are scanned up to the end. Throws InputError.
Dataset open_dataset(const std::string& glob, const std::string& key, std::int64_t vocab_size);

}  // namespace compact
