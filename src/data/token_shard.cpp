#include "compact/data/token_shard.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "compact/core/error.h"
#include "src/data/shard_format.h"

namespace compact {
namespace {

std::uint32_t swapped(std::uint32_t x) { return __builtin_bswap32(x); }

// Widens `count` raw tokens into `to`; returns the largest.
template <typename Raw>
std::uint32_t widen(const char* raw, std::int64_t count, std::int32_t* to) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Raw token;
    std::memcpy(&token, raw + i * static_cast<std::int64_t>(sizeof(Raw)), sizeof token);
    to[i] = static_cast<std::int32_t>(token);
    largest = std::max<std::uint32_t>(largest, token);
  }
  return largest;
}

}  // namespace

TokenShard::TokenShard(const std::string& path) : file_(path) {
  if (file_.size() < shard::kHeaderBytes)
    input_error("{} is no token shard: it has {} bytes, the header alone takes {}", path, file_.size(),
                shard::kHeaderBytes);
  std::array<std::int32_t, 3> words{};
  file_.read(0, words.data(), sizeof words);
  const auto [magic, version, count] = words;
  const auto is_magic = [](std::int32_t x) { return x == shard::kMagic16 || x == shard::kMagic32; };
  if (is_magic(static_cast<std::int32_t>(swapped(static_cast<std::uint32_t>(magic)))))
    input_error(
        "{} is a big-endian token shard, little-endian is needed; write it anew with compact tokenize", path);
  if (!is_magic(magic))
    input_error("{} is no token shard: expected magic {} or {} at offset 0, found {}", path, shard::kMagic16,
                shard::kMagic32, magic);
  width_ = magic == shard::kMagic16 ? 2 : 4;
  const std::int32_t expected = width_ == 2 ? shard::kVersion16 : shard::kVersion32;
  if (version != expected)
    input_error("{}: expected version {} at offset 4 for magic {}, found version {}", path, expected, magic,
                version);
  if (count <= 0)
    input_error("{}: the header's token count at offset 8 is {}, it must be above 0", path, count);
  tokens_ = count;
  const std::int64_t bytes = shard::kHeaderBytes + tokens_ * width_;
  if (file_.size() != bytes)
    input_error(
        "{}: the header promises {} tokens of {} bytes, {} bytes in all, but the file has {}; it is cut off "
        "or damaged",
        path, tokens_, width_, bytes, file_.size());
}

void TokenShard::read(std::int64_t first, std::int64_t count, std::int32_t* to,
                      std::int64_t vocab_size) const {
  if (first < 0 || count < 0 || first > tokens_ - count)
    bug(fmt::format("TokenShard::read: tokens {} to {} of {} in {}", first, first + count, tokens_, path()));
  constexpr std::int64_t kBlockBytes = 8192;
  std::array<char, kBlockBytes> raw;
  // Ids become int32, so even without a vocabulary there is a bound.
  const std::int64_t bound = vocab_size > 0 ? vocab_size : std::int64_t{1} << 31;
  const std::int64_t block = kBlockBytes / width_;
  for (std::int64_t at = 0; at < count; at += block) {
    const std::int64_t n = std::min(block, count - at);
    file_.read(shard::kHeaderBytes + (first + at) * width_, raw.data(), static_cast<std::size_t>(n * width_));
    const std::uint32_t largest = width_ == 2 ? widen<std::uint16_t>(raw.data(), n, to + at)
                                              : widen<std::uint32_t>(raw.data(), n, to + at);
    if (largest < bound) continue;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t id = static_cast<std::uint32_t>(to[at + i]);
      if (id >= bound)
        input_error(
            "{}: token {} is id {}, but the vocabulary has only {} ids (0 to {}); use the tokenizer this "
            "model "
            "was made for",
            path(), first + at + i, id, bound, bound - 1);
    }
  }
}

}  // namespace compact
