#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace compact {

/// Of the words that describe a matrix product, for tables of what is known about products.
inline std::size_t hash_words(std::span<const std::int64_t> words) {
  std::uint64_t h = 0;
  for (const std::int64_t w : words)
    h = (h ^ static_cast<std::uint64_t>(w)) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
  return static_cast<std::size_t>(h);
}

}  // namespace compact
