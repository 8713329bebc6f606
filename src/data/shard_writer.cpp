#include "src/data/shard_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "compact/core/error.h"
#include "src/data/shard_format.h"

namespace compact {
namespace {

constexpr std::size_t kBuffer = 256 << 10;
constexpr std::int64_t kMostShards =
    1'000'000;  // six digits, so that the order of names is the order of shards

std::array<std::int32_t, 256> header(int width, std::int64_t tokens) {
  std::array<std::int32_t, 256> words{};
  words[0] = width == 2 ? shard::kMagic16 : shard::kMagic32;
  words[1] = width == 2 ? shard::kVersion16 : shard::kVersion32;
  words[2] = static_cast<std::int32_t>(tokens);
  return words;
}

void rename_file(const std::string& from, const std::string& to) {
  std::error_code code;
  std::filesystem::rename(from, to, code);
  if (code) run_error("cannot rename {} to {}: {}", from, to, code.message());
}

void remove_file(const std::string& path) {
  std::error_code code;
  std::filesystem::remove(path, code);
  if (code) run_error("cannot remove the old file {}: {}", path, code.message());
}

// NAME_train_NNNNNN.bin or NAME_val_NNNNNN.bin, perhaps with .tmp behind it.
bool is_shard_name(std::string_view file, std::string_view name) {
  if (file.substr(0, name.size()) != name) return false;
  file.remove_prefix(name.size());
  if (file.substr(0, 7) == "_train_")
    file.remove_prefix(7);
  else if (file.substr(0, 5) == "_val_")
    file.remove_prefix(5);
  else
    return false;
  const std::size_t digits = std::min(file.find_first_not_of("0123456789"), file.size());
  return digits == 6 && (file.substr(digits) == ".bin" || file.substr(digits) == ".bin.tmp");
}

}  // namespace

std::pair<std::string, std::string> split_prefix(const std::string& prefix) {
  const std::filesystem::path path(prefix);
  const std::string folder = path.parent_path().string();
  return {folder.empty() ? "." : folder, path.filename().string()};
}

namespace {
void remove_shards(const std::string& prefix, std::string_view extension) {
  const auto [folder, name] = split_prefix(prefix);
  std::error_code code;
  std::vector<std::string> old;
  for (std::filesystem::directory_iterator i(folder, code), end; !code && i != end; i.increment(code))
    if (is_shard_name(i->path().filename().string(), name) && i->path().extension() == extension)
      old.push_back(i->path().string());
  if (code) run_error("cannot list the folder {}: {}", folder, code.message());
  for (const std::string& path : old) remove_file(path);
}
}  // namespace

void remove_old_shards(const std::string& prefix) {
  remove_file(prefix + ".json");
  remove_shards(prefix, ".bin");
}

void remove_stale_shards(const std::string& prefix) { remove_shards(prefix, ".tmp"); }

ShardWriter::ShardWriter(const std::string& prefix, const std::string& split, const ShardFormat& format)
    : prefix_(prefix),
      split_(split),
      format_(format),
      width_(format.vocab_size <= shard::kLargestVocab16 ? 2 : 4) {
  buffer_.reserve(kBuffer);
}

ShardWriter::~ShardWriter() {
  file_.reset();
  for (const Shard& s : shards_) std::remove((s.path + ".tmp").c_str());
}

void ShardWriter::flush() {
  file_->write(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void ShardWriter::add(const std::int32_t* ids, std::int64_t count) {
  while (count > 0) {
    if (!file_) {
      const auto number = static_cast<std::int64_t>(shards_.size());
      if (number == kMostShards)
        input_error("more than {} shards of {} tokens are needed; raise --shard-tokens", kMostShards,
                    format_.shard_tokens);
      shards_.push_back({fmt::format("{}_{}_{:06}.bin", prefix_, split_, number), 0, 0});
      file_ = std::make_unique<OutputFile>(shards_.back().path + ".tmp");
      buffer_.assign(shard::kHeaderBytes, '\0');  // the header is written last: it holds the count
    }
    const std::int64_t n = std::min(count, format_.shard_tokens - shards_.back().tokens);
    put(ids, n);
    ids += n;
    count -= n;
    if (shards_.back().tokens == format_.shard_tokens) finish();
  }
}

void ShardWriter::put(const std::int32_t* ids, std::int64_t count) {
  Shard& s = shards_.back();
  for (std::int64_t i = 0; i < count; ++i) {
    char raw[4];
    std::memcpy(raw, &ids[i], sizeof raw);  // little-endian: the low bytes come first
    buffer_.insert(buffer_.end(), raw, raw + width_);
    if (buffer_.size() >= kBuffer) flush();
  }
  s.tokens += count;
  tokens_ += count;
  s.documents = format_.row_length > 0 ? s.tokens / format_.row_length
                                       : s.documents + std::count(ids, ids + count, format_.end_of_text);
}

void ShardWriter::finish() {
  if (!file_) return;
  flush();
  const auto words = header(width_, shards_.back().tokens);
  file_->seek(0);
  file_->write(words.data(), sizeof words);
  file_->close();
  file_.reset();
}

void ShardWriter::move_tail(std::int64_t count, ShardWriter& to) {
  const std::int64_t keep = tokens_ - count;
  std::int64_t first = 0;
  std::vector<Shard> old;
  old.swap(shards_);
  tokens_ = 0;
  constexpr std::int64_t kBlock = 64 << 10;
  std::vector<std::int32_t> ids(kBlock);
  for (const Shard& s : old) {
    const std::string path = s.path + ".tmp";
    if (first + s.tokens <= keep) {  // stays as it is
      shards_.push_back(s);
      tokens_ += s.tokens;
    } else {
      const std::string aside = path + ".old";
      rename_file(path, aside);
      try {
        const TokenShard source(aside);
        for (std::int64_t at = 0; at < s.tokens;) {
          const bool stays = first + at < keep;
          const std::int64_t n = std::min({kBlock, s.tokens - at, stays ? keep - first - at : kBlock});
          source.read(at, n, ids.data(), format_.vocab_size);
          (stays ? *this : to).add(ids.data(), n);
          at += n;
        }
      } catch (...) {
        std::remove(aside.c_str());
        throw;
      }
      remove_file(aside);
    }
    first += s.tokens;
  }
  finish();
  to.finish();
}

std::vector<DataManifest::Entry> ShardWriter::publish() {
  std::vector<DataManifest::Entry> entries;
  for (const Shard& s : shards_) {
    const std::string hash = xxh3_of_file(s.path + ".tmp");
    rename_file(s.path + ".tmp", s.path);
    entries.push_back({std::filesystem::path(s.path).filename().string(), s.tokens, s.documents, hash});
  }
  shards_.clear();
  return entries;
}

}  // namespace compact
