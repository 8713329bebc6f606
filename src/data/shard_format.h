#pragma once
#include <bit>
#include <cstdint>

namespace compact::shard {

// llm.c's layout: 256 int32, of which the first three count, then the tokens; everything little-endian.
inline constexpr std::int64_t kHeaderBytes = 1024;
inline constexpr std::int32_t kMagic16 = 20240520, kVersion16 = 1;
inline constexpr std::int32_t kMagic32 = 20240801, kVersion32 = 7;
inline constexpr std::int64_t kLargestVocab16 = 65536;

static_assert(std::endian::native == std::endian::little,
              "shards are read and written as they lie in memory");

}  // namespace compact::shard
