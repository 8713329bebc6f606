#include "compact/io/file.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "compact/core/error.h"

namespace compact {
namespace {

std::string reason(int code) { return std::generic_category().message(code); }

std::string parent_folder(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  do fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) run_error("cannot create {}: {}", path, reason(errno));
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::write(const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, from, bytes);
    if (n < 0) {
      if (errno == EINTR) continue;
      run_error("cannot write {}: {}", path_, reason(errno));
    }
    from += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

void OutputFile::seek(std::int64_t offset) {
  if (::lseek(fd_, offset, SEEK_SET) < 0)
    run_error("cannot go to offset {} of {}: {}", offset, path_, reason(errno));
}

void OutputFile::close() {
  // EINVAL: a device that has nothing to flush, such as /dev/null.
  if (::fsync(fd_) != 0 && errno != EINVAL)
    run_error("cannot flush {} to the disk: {}", path_, reason(errno));
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 && errno != EINTR) run_error("cannot close {}: {}", path_, reason(errno));
}

InputFile::InputFile(const std::string& path) : path_(path) {
  // Looked at before it is opened: opening a pipe or a device can block or have effects.
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    const int code = errno;
    struct stat link {};
    if (code == ENOENT && ::lstat(path.c_str(), &link) == 0)
      input_error("cannot open {}: it is a symbolic link to a file that does not exist", path);
    input_error("cannot open {}: {}", path, reason(code));
  }
  if (S_ISDIR(info.st_mode)) input_error("cannot read {}: it is a directory, a file is needed", path);
  if (!S_ISREG(info.st_mode))
    input_error("cannot read {}: it is {}, a regular file is needed", path,
                S_ISFIFO(info.st_mode) ? "a named pipe" : "a device or a socket");
  do fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) input_error("cannot open {}: {}", path, reason(errno));
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd_);
    input_error("cannot read {}: it changed while it was opened", path);
  }
  size_ = info.st_size;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

void InputFile::read(std::int64_t offset, void* to, std::size_t bytes) const {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::pread(fd_, static_cast<char*>(to) + done, bytes - done,
                              static_cast<off_t>(offset + static_cast<std::int64_t>(done)));
    if (n < 0) {
      if (errno == EINTR) continue;
      input_error("cannot read {} bytes at offset {} of {}: {}", bytes, offset, path_, reason(errno));
    }
    if (n == 0)
      input_error("{} ends too early: {} bytes are needed at offset {}, it holds {}; the file is cut off",
                  path_, bytes, offset, done);
    done += static_cast<std::size_t>(n);
  }
}

FolderLock::FolderLock(const std::string& path)
    : fd_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) input_error("cannot open the folder {}: {}", path, reason(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  input_error("{} is in use by another compact process; wait until it ends, or name another folder", path);
}

FolderLock::~FolderLock() { ::close(fd_); }

std::string read_text(const std::string& path, std::int64_t limit) {
  const InputFile file(path);
  if (file.size() > limit)
    input_error("{} is too large: {} bytes, at most {} are expected here", path, file.size(), limit);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

void write_text_atomically(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  try {
    OutputFile file(temporary);
    file.write(text);
    file.close();
    if (std::rename(temporary.c_str(), path.c_str()) != 0)
      run_error("cannot rename {} to {}: {}", temporary, path, reason(errno));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(parent_folder(path));
}

std::string xxh3_of_file(const std::string& path) {
  const InputFile file(path);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  if (!state) run_error("out of memory while hashing {}", path);
  XXH3_64bits_reset(state.get());
  constexpr std::int64_t kPiece = 1 << 20;
  std::vector<char> piece(static_cast<std::size_t>(std::min(kPiece, file.size())));
  for (std::int64_t at = 0; at < file.size(); at += kPiece) {
    const auto n = static_cast<std::size_t>(std::min(kPiece, file.size() - at));
    file.read(at, piece.data(), n);
    XXH3_64bits_update(state.get(), piece.data(), n);
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

void make_folders(const std::string& path) {
  if (path.empty()) return;
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) run_error("cannot make the folder {}: {}", path, code.message());
  if (!std::filesystem::is_directory(path, code))
    run_error("cannot make the folder {}: a file of that name is in the way", path);
}

void sync_folder(const std::string& path) {
  const std::string folder = path.empty() ? "." : path;
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) run_error("cannot open the folder {}: {}", folder, reason(errno));
  const int code = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // EINVAL: a file system that keeps no separate entries to flush.
  if (code != 0 && code != EINVAL)
    run_error("cannot flush the folder {} to the disk: {}", folder, reason(code));
}

std::vector<std::string> glob_files(const std::string& pattern) {
  // lstat: a broken link matches too, so that opening it can say what is wrong with it.
  struct stat info {};
  if (::lstat(pattern.c_str(), &info) == 0) return {pattern};
  glob_t found{};
  const int code = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  if (code == GLOB_NOSPACE) run_error("out of memory while listing the files of {}", pattern);
  std::sort(paths.begin(), paths.end());  // by bytes: the same order in every locale
  return paths;
}

}  // namespace compact
