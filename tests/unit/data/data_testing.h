#pragma once
#include <zlib.h>

#include <unistd.h>
#include <cstring>

#include <cstdlib>

#include "compact/data/token_shard.h"
#include "compact/data/tokenizer.h"
#include "unit/io/io_testing.h"

namespace compact {

/// A token shard as bytes; `magic` and `version` of 0 stand for the right ones.
inline std::string shard_bytes(const std::vector<std::uint32_t>& tokens, int width = 2,
                               std::int32_t magic = 0, std::int32_t version = 0) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic ? magic : (width == 2 ? 20240520 : 20240801);
  header[1] = version ? version : (width == 2 ? 1 : 7);
  header[2] = static_cast<std::int32_t>(tokens.size());
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  for (const std::uint32_t t : tokens)
    for (int i = 0; i < width; ++i) bytes += static_cast<char>(t >> (8 * i) & 0xff);
  return bytes;
}

/// The ids 0, 1, ... below `vocab`, over and over, from `first` on.
inline std::vector<std::uint32_t> counting(std::size_t count, std::uint32_t vocab = 64,
                                           std::uint32_t first = 0) {
  std::vector<std::uint32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = (first + static_cast<std::uint32_t>(i)) % vocab;
  return ids;
}

inline std::vector<std::int32_t> read_shards(const std::string& glob) {
  std::vector<std::int32_t> ids;
  for (const std::string& path : glob_files(glob)) {
    const TokenShard shard(path);
    std::vector<std::int32_t> part(static_cast<std::size_t>(shard.tokens()));
    shard.read(0, shard.tokens(), part.data(), 0);
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

inline std::string gzip(const std::string& text) {
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

/// Some English-like text: `sentences` lines, the same every time.
inline std::string story(int sentences, unsigned seed = 1) {
  static const char* const words[] = {"girl",   "needle", "room",  "mother", "shirt",   "button",  "little",
                                      "found",  "wanted", "share", "played", "happy",   "river",   "stone",
                                      "yellow", "seven",  "tree",  "wind",   "running", "quietly", "the",
                                      "a",      "with",   "and",   "her"};
  std::string text;
  std::uint32_t x = seed;
  for (int i = 0; i < sentences; ++i) {
    text += "One day";
    for (int k = 0; k < 8; ++k) {
      x = x * 1664525 + 1013904223;
      text += std::string(" ") + words[(x >> 10) % 25];
    }
    text += ". Then it was " + std::to_string(x % 1000) + ".\n";
  }
  return text;
}

/// A small tokenizer of our own, trained once for the whole program: vocabulary 340.
inline const std::string& small_tokenizer() {
  static const std::string path = [] {
    const auto folder = std::filesystem::temp_directory_path() / ("compact_tok_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    const std::string name = (folder / "small").string();
    put_file(name + ".txt", story(300));
    train_tokenizer(340, name, {name + ".txt"});
    std::atexit([] {
      std::filesystem::remove_all(std::filesystem::temp_directory_path() /
                                  ("compact_tok_" + std::to_string(getpid())));
    });
    return name + ".model";
  }();
  return path;
}

/// A file below the folder of shared texts and tokenizers; empty where it is not there.
inline std::string shared_data(const std::string& name) {
  const std::string path = COMPACT_SOURCE_DIR "/../shared/data/" + name;
  return std::filesystem::exists(path) ? path : "";
}

}  // namespace compact
