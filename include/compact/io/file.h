#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace compact {

/// A file being written: every write is checked, `close` flushes to the disk. Throws RunError with the path
/// and the system's reason ("No space left on device"). An object that is destroyed before `close` removes
/// nothing.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void seek(std::int64_t offset);
  /// fsync and close.
  void close();

 private:
  std::string path_;
  int fd_ = -1;
};

/// A regular file being read at any offset with checked reads. Opening a directory, a pipe, a missing file or
/// a broken link throws InputError with the path and the reason.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  std::int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  /// Reads exactly `bytes` at `offset`, or throws InputError (path, offset, expected and found).
  void read(std::int64_t offset, void* to, std::size_t bytes) const;

 private:
  std::string path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

/// Keeps other processes out of a folder while it lives (an advisory lock of the folder itself; no file is
/// made). Throws InputError when another process holds it. On a file system without locks it does nothing.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

/// The whole file as text, at most `limit` bytes. Throws InputError.
std::string read_text(const std::string& path, std::int64_t limit = 64 << 20);
/// Writes `text` to path.tmp, fsyncs, renames over `path`. Throws RunError.
void write_text_atomically(const std::string& path, std::string_view text);
/// XXH3 64-bit of a whole file as 16 hexadecimal digits, read in pieces.
std::string xxh3_of_file(const std::string& path);
/// Makes a folder and its parents. Throws RunError naming the path and the reason.
void make_folders(const std::string& path);
/// Flushes the entries of a folder (after a rename). Throws RunError.
void sync_folder(const std::string& path);
/// Paths that match a glob, sorted; a plain path that exists matches itself.
std::vector<std::string> glob_files(const std::string& pattern);

}  // namespace compact
