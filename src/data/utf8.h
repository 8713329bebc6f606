#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace compact {

/// Checks UTF-8 that comes in blocks: no overlong forms, no surrogates, nothing above U+10FFFF.
class Utf8Checker {
 public:
  /// Looks at the next block; false when it holds a byte that cannot be. bad_offset() then says where.
  bool accept(std::string_view block);
  /// False when the text ended inside a character.
  bool complete() const { return missing_ == 0; }
  /// Offset of the first byte of the bad (or unfinished) character, counted from the start of the text.
  std::int64_t bad_offset() const { return start_; }

 private:
  std::int64_t offset_ = 0, start_ = 0;
  int missing_ = 0;                         // bytes that the current character still needs
  unsigned char low_ = 0x80, high_ = 0xBF;  // what the next of them may be
};

/// `text` with each byte that is not part of a valid character replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

/// Where to cut a text that has no better place: in front of its last newline, else its last space, else its
/// last character. Above 0; `text` must not be empty.
std::size_t last_break(std::string_view text);

}  // namespace compact
