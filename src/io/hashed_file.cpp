#include "hashed_file.h"

#include <algorithm>
#include <new>
#include <vector>

#include "compact/core/error.h"

namespace compact {

Hasher::Hasher() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void Hasher::add(const void* data, std::size_t bytes) {
  XXH3_64bits_update(state_.get(), data, bytes);
  bytes_ += static_cast<std::int64_t>(bytes);
}

FileDigest Hasher::digest() const {
  return {bytes_, fmt::format("{:016x}", static_cast<std::uint64_t>(XXH3_64bits_digest(state_.get())))};
}

void HashedFile::write(const void* data, std::size_t bytes) {
  // In pieces, so that each is hashed while it is still in the cache.
  constexpr std::size_t piece = 1 << 20;
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const std::size_t n = std::min(piece, bytes);
    file_.write(at, n);
    hash_.add(at, n);
    at += n;
    bytes -= n;
  }
}

FileDigest HashedFile::close() {
  file_.close();
  return hash_.digest();
}

FileDigest copy_file(const std::string& from, const std::string& to) {
  const InputFile in(from);
  HashedFile out(to);
  std::vector<char> piece(4 << 20);
  for (std::int64_t at = 0; at < in.size();) {
    const std::int64_t n = std::min(static_cast<std::int64_t>(piece.size()), in.size() - at);
    in.read(at, piece.data(), static_cast<std::size_t>(n));
    out.write(piece.data(), static_cast<std::size_t>(n));
    at += n;
  }
  return out.close();
}

}  // namespace compact
