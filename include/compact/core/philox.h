#pragma once
#include <array>
#include <cstdint>

namespace compact {

/// What a random number is for; the top byte of the fourth counter word (design, section 2).
enum class Stream : std::uint32_t { Init = 0, Projection = 1, Rounding = 2, Order = 3, Sampling = 4 };

constexpr std::uint32_t stream_word(Stream stream, std::uint32_t id) {
  return static_cast<std::uint32_t>(stream) << 24 | id;
}

/// Philox 4x32-10 (Salmon et al. 2011): four words from a counter of four words and a 64-bit key, low word
/// first.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::uint64_t key) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0], p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace compact
