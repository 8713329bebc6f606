#pragma once
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "compact/io/file.h"

namespace compact {

/// Size and XXH3 of a file's bytes; `xxh3` is written as xxh3_of_file writes it.
struct FileDigest {
  std::int64_t bytes = 0;
  std::string xxh3;
};

/// XXH3 64-bit of bytes that come in pieces.
class Hasher {
 public:
  Hasher();
  void add(const void* data, std::size_t bytes);
  FileDigest digest() const;

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
  std::int64_t bytes_ = 0;
};

/// A file being written whose size and hash are known when it is closed, without reading it again.
class HashedFile {
 public:
  explicit HashedFile(const std::string& path) : file_(path) {}
  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// fsync and close.
  FileDigest close();

 private:
  OutputFile file_;
  Hasher hash_;
};

/// Copies `from` to the new file `to` in pieces. Throws InputError about `from`, RunError about `to`.
FileDigest copy_file(const std::string& from, const std::string& to);

}  // namespace compact
