#include "src/data/byte_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "compact/core/error.h"

namespace compact {
namespace {

constexpr std::size_t kRaw = 64 << 10;
constexpr unsigned char kMagic0 = 0x1F, kMagic1 = 0x8B;

std::string reason(int code) { return std::generic_category().message(code); }

}  // namespace

struct ByteReader::Gzip {
  z_stream stream{};
  bool between = false;  // one member has ended, the next has not begun
  Gzip() {
    if (inflateInit2(&stream, 15 + 16) != Z_OK) run_error("out of memory while unpacking gzip data");
  }
  ~Gzip() { inflateEnd(&stream); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
};

std::string input_name(const std::string& input) { return input == "-" ? "standard input" : input; }

void check_input(const std::string& input) {
  if (input == "-") return;
  struct stat info {};
  if (::stat(input.c_str(), &info) != 0) input_error("cannot open the input {}: {}", input, reason(errno));
  if (S_ISDIR(info.st_mode))
    input_error("cannot read the input {}: it is a directory, give its files", input);
  if (::access(input.c_str(), R_OK) != 0) input_error("cannot read the input {}: {}", input, reason(errno));
}

ByteReader::ByteReader(const std::string& input)
    : name_(input_name(input)), raw_(std::make_unique<char[]>(kRaw)) {
  check_input(input);
  if (input == "-") {
    fd_ = STDIN_FILENO;
  } else {
    do fd_ = ::open(input.c_str(), O_RDONLY | O_CLOEXEC);
    while (fd_ < 0 && errno == EINTR);
    if (fd_ < 0) input_error("cannot open the input {}: {}", input, reason(errno));
  }
  while (!at_end_ && end_ < 2) fill();
  if (end_ >= 2 && static_cast<unsigned char>(raw_[0]) == kMagic0 &&
      static_cast<unsigned char>(raw_[1]) == kMagic1)
    gzip_ = std::make_unique<Gzip>();
}

ByteReader::~ByteReader() {
  if (fd_ > STDIN_FILENO) ::close(fd_);
}

void ByteReader::fill() {
  if (begin_ == end_) begin_ = end_ = 0;
  const ssize_t n = ::read(fd_, raw_.get() + end_, kRaw - end_);
  if (n < 0) {
    if (errno == EINTR) return;
    input_error("cannot read {}: {}", name_, reason(errno));
  }
  at_end_ = n == 0;
  end_ += static_cast<std::size_t>(n);
}

std::size_t ByteReader::read(char* to, std::size_t bytes) {
  if (gzip_) return unpack(to, bytes);
  while (begin_ == end_ && !at_end_) fill();
  const std::size_t n = std::min(bytes, end_ - begin_);
  std::memcpy(to, raw_.get() + begin_, n);
  begin_ += n;
  return n;
}

std::size_t ByteReader::unpack(char* to, std::size_t bytes) {
  z_stream& z = gzip_->stream;
  z.next_out = reinterpret_cast<Bytef*>(to);
  z.avail_out = static_cast<uInt>(bytes);
  while (z.avail_out == bytes) {
    while (begin_ == end_ && !at_end_) fill();
    if (gzip_->between) {
      // Zeros may pad the end (tapes, block devices); anything but a further member would be lost text.
      while (begin_ < end_ && raw_[begin_] == 0) ++begin_;
      if (begin_ == end_ && at_end_) return 0;
      if (begin_ == end_) continue;
      if (static_cast<unsigned char>(raw_[begin_]) != kMagic0)
        input_error("{} holds other bytes after its gzip data; it is damaged, make it anew", name_);
      inflateReset(&z);
      gzip_->between = false;
    }
    if (begin_ == end_)
      input_error("{} ends in the middle of its gzip data; it is cut off, get it again", name_);
    z.next_in = reinterpret_cast<Bytef*>(raw_.get() + begin_);
    z.avail_in = static_cast<uInt>(end_ - begin_);
    const int code = inflate(&z, Z_NO_FLUSH);
    begin_ = end_ - z.avail_in;
    if (code == Z_STREAM_END)
      gzip_->between = true;
    else if (code != Z_OK && code != Z_BUF_ERROR)
      input_error("{} holds broken gzip data ({}); get it again", name_, z.msg ? z.msg : "unknown error");
  }
  return bytes - z.avail_out;
}

}  // namespace compact
