#include "src/data/utf8.h"

#include <cstring>

namespace compact {
namespace {

// Length of the character that begins with `lead` (0: no character can), and the range of its second byte.
int lead_byte(unsigned char lead, unsigned char& low, unsigned char& high) {
  low = 0x80;
  high = 0xBF;
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (lead == 0xE0) low = 0xA0;   // shorter forms exist
    if (lead == 0xED) high = 0x9F;  // surrogates
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;  // above U+10FFFF
    return 4;
  }
  return 0;
}

}  // namespace

bool Utf8Checker::accept(std::string_view block) {
  std::size_t i = 0;
  while (i < block.size()) {
    if (missing_ == 0) {
      // Eight ASCII bytes at a time: most text is that.
      std::uint64_t eight = 0;
      while (i + 8 <= block.size()) {
        std::memcpy(&eight, block.data() + i, 8);
        if (eight & 0x8080808080808080u) break;
        i += 8;
      }
      if (i == block.size()) break;
      start_ = offset_ + static_cast<std::int64_t>(i);
      const int length = lead_byte(static_cast<unsigned char>(block[i]), low_, high_);
      if (length == 0) return false;
      missing_ = length - 1;
    } else {
      const auto byte = static_cast<unsigned char>(block[i]);
      if (byte < low_ || byte > high_) return false;
      low_ = 0x80;
      high_ = 0xBF;
      --missing_;
    }
    ++i;
  }
  offset_ += static_cast<std::int64_t>(block.size());
  return true;
}

std::string valid_utf8(std::string_view text) {
  Utf8Checker checker;
  if (checker.accept(text) && checker.complete()) return std::string(text);
  std::string good;
  for (std::size_t i = 0; i < text.size();) {
    unsigned char low = 0, high = 0;
    const auto length = static_cast<std::size_t>(lead_byte(static_cast<unsigned char>(text[i]), low, high));
    Utf8Checker one;
    if (length > 0 && i + length <= text.size() && one.accept(text.substr(i, length)) && one.complete()) {
      good.append(text.substr(i, length));
      i += length;
    } else {
      good += "\xEF\xBF\xBD";
      ++i;
    }
  }
  return good;
}

std::size_t last_break(std::string_view text) {
  for (const char c : {'\n', ' '}) {
    const std::size_t place = text.rfind(c);
    if (place != text.npos && place > 0) return place;
  }
  std::size_t place = text.size() - 1;
  while (place > 0 && (static_cast<unsigned char>(text[place]) & 0xC0) == 0x80) --place;
  return place > 0 ? place : text.size();
}

}  // namespace compact
