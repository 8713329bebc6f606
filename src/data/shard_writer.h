#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compact/data/token_shard.h"

namespace compact {

struct ShardFormat {
  std::int64_t vocab_size = 0;    ///< decides whether a token takes 2 or 4 bytes
  std::int64_t shard_tokens = 0;  ///< a shard's size; with rows a multiple of row_length
  std::int64_t row_length = 0;    ///< > 0: each row is a document
  std::int32_t end_of_text = -1;  ///< else each of these ends one
};

/// Writes the shards PREFIX_<split>_NNNNNN.bin. Until publish() they lie under names that end in .tmp, and
/// they are removed if it is never called: a failed run leaves an older data set as it was.
class ShardWriter {
 public:
  ShardWriter(const std::string& prefix, const std::string& split, const ShardFormat& format);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Appends tokens; a shard that is full is closed and the next one begun.
  void add(const std::int32_t* ids, std::int64_t count);
  /// Closes the last shard. No token may follow.
  void finish();
  /// After finish(): moves the last `count` tokens, fewer than there are, to `to`.
  void move_tail(std::int64_t count, ShardWriter& to);
  /// After finish(): gives the shards their names; returns their entries for the manifest.
  std::vector<DataManifest::Entry> publish();

  std::int64_t tokens() const { return tokens_; }

 private:
  struct Shard {
    std::string path;  // without .tmp
    std::int64_t tokens = 0, documents = 0;
  };
  void put(const std::int32_t* ids, std::int64_t count);
  void flush();
  std::string prefix_, split_;
  ShardFormat format_;
  int width_;
  std::int64_t tokens_ = 0;
  std::vector<Shard> shards_;
  std::unique_ptr<OutputFile> file_;  // the last of shards_, while it is open
  std::vector<char> buffer_;
};

/// Removes the manifest and then the shards that an earlier run left under this prefix.
void remove_old_shards(const std::string& prefix);

/// Removes the half-written .tmp shards that a killed run left under this prefix.
void remove_stale_shards(const std::string& prefix);
/// Folder and name of a prefix; the folder is "." where the prefix names none.
std::pair<std::string, std::string> split_prefix(const std::string& prefix);

}  // namespace compact
