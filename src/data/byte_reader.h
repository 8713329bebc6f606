#pragma once
#include <cstddef>
#include <memory>
#include <string>

namespace compact {

/// Throws InputError when `input` (a file, a pipe, or "-") is not there or cannot be read.
void check_input(const std::string& input);
/// How `input` is called in messages.
std::string input_name(const std::string& input);

/// The bytes of a file, a pipe or standard input ("-") in order. Gzip data is unpacked, whatever its name:
/// the first two bytes tell it apart, since no UTF-8 text begins with them.
class ByteReader {
 public:
  explicit ByteReader(const std::string& input);
  ~ByteReader();
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;
  /// Reads up to `bytes`; 0 only at the end. Throws InputError when gzip data is broken or cut off.
  std::size_t read(char* to, std::size_t bytes);
  const std::string& name() const { return name_; }

 private:
  struct Gzip;
  void fill();
  std::size_t unpack(char* to, std::size_t bytes);
  std::string name_;
  int fd_ = -1;
  std::unique_ptr<char[]> raw_;  // bytes as they lie in the file
  std::size_t begin_ = 0, end_ = 0;
  bool at_end_ = false;
  std::unique_ptr<Gzip> gzip_;
};

}  // namespace compact
