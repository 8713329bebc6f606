#include "compact/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "compact/core/bf16.h"
#include "compact/core/error.h"
#include "safetensors_header.h"

namespace compact {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian, and read as they are");

namespace {

/// As in the reference reader: a larger header is taken for a damaged file.
constexpr std::uint64_t largest_header = 100'000'000;
constexpr std::int64_t piece_bytes = 4 << 20;

float f32_of_f16(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16, exponent = (h >> 10) & 31u,
                      fraction = h & 1023u;
  if (exponent == 0) {  // zero and subnormal: fraction · 2^-24, exact in fp32
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -value : value;
  }
  const std::uint32_t e = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | e << 23 | fraction << 13);
}

float f32_of_bf16(std::uint16_t b) { return to_float(Bf16{b}); }
float f32_of_f32(float x) { return x; }

/// Reads `count` numbers stored as `Stored` from `offset` on; each goes through `convert` (to float) and is
/// stored as To, rounded to nearest.
template <typename Stored, typename To, typename Convert>
void read_converted(const InputFile& file, std::int64_t offset, std::int64_t count, To* to, Convert convert) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(Stored));
  std::vector<Stored> piece(static_cast<std::size_t>(std::min(count, piece_bytes / size)));
  while (count > 0) {
    const auto n = std::min(piece.size(), static_cast<std::size_t>(count));
    file.read(offset, piece.data(), n * sizeof(Stored));
    for (std::size_t i = 0; i < n; ++i) put(*to++, convert(piece[i]));
    offset += static_cast<std::int64_t>(n) * size;
    count -= static_cast<std::int64_t>(n);
  }
}

bool same_shape(const std::vector<std::int64_t>& stored, const Shape& shape) {
  if (stored.size() != static_cast<std::size_t>(shape.rank())) return false;
  for (int i = 0; i < shape.rank(); ++i)
    if (stored[static_cast<std::size_t>(i)] != shape[i]) return false;
  return true;
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  if (file_.size() < 8)
    input_error("{}: has {} bytes, a safetensors file has at least 8; it may be cut off", path, file_.size());
  std::uint64_t length = 0;
  file_.read(0, &length, sizeof length);
  if (length == 0)
    input_error("{}: the header has 0 bytes, so this is no safetensors file or it is damaged", path);
  if (length > largest_header)
    input_error(
        "{}: the header should have {} bytes, more than the {} that are possible; this is no safetensors "
        "file",
        path, length, largest_header);
  const auto header_bytes = static_cast<std::int64_t>(length);
  if (header_bytes > file_.size() - 8)
    input_error("{}: the header should have {} bytes, but only {} follow; the file may be cut off", path,
                header_bytes, file_.size() - 8);
  std::string text(static_cast<std::size_t>(header_bytes), '\0');
  file_.read(8, text.data(), text.size());
  SafetensorsHeader header = parse_safetensors_header(path, text);
  check_safetensors_layout(path, header, file_.size() - 8 - header_bytes);
  for (auto& [name, t] : header.tensors) {
    t.begin += 8 + header_bytes;
    t.end += 8 + header_bytes;
  }
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
}

void SafetensorsReader::read(const NamedTensor& part) const {
  const std::string& name = part.name;
  const Tensor& to = part.data;
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) input_error("{}: has no tensor {}", path(), name);
  const StoredTensor& t = found->second;
  if (!same_shape(t.shape, part.shape()))
    input_error("{}: tensor {} should have the shape {}, the file has [{}]", path(), name,
                part.shape().text(), fmt::join(t.shape, ", "));
  require(to.contiguous() && (to.data != nullptr || to.elements() == 0), "SafetensorsReader::read",
          "needs contiguous memory to read to");
  require(part.first >= 0 && part.first + to.elements() <= part.shape().elements(), "SafetensorsReader::read",
          "elements that the tensor does not have");
  const std::int64_t begin = t.begin + part.first * safetensors_dtype_bytes(t.dtype);
  if (t.dtype == name_of(to.dtype) && to.dtype != DType::I32) {
    for (std::int64_t at = 0; at < to.bytes(); at += piece_bytes)
      file_.read(begin + at, static_cast<std::byte*>(to.data) + at,
                 static_cast<std::size_t>(std::min(piece_bytes, to.bytes() - at)));
  } else if (to.dtype == DType::F32 && t.dtype == "BF16") {
    read_converted<std::uint16_t>(file_, begin, to.elements(), to.f32(), f32_of_bf16);
  } else if (to.dtype == DType::F32 && t.dtype == "F16") {
    read_converted<std::uint16_t>(file_, begin, to.elements(), to.f32(), f32_of_f16);
  } else if (to.dtype == DType::BF16 && t.dtype == "F32") {
    read_converted<float>(file_, begin, to.elements(), to.as<Bf16>(), f32_of_f32);
  } else if (to.dtype == DType::BF16 && t.dtype == "F16") {
    read_converted<std::uint16_t>(file_, begin, to.elements(), to.as<Bf16>(), f32_of_f16);
  } else {
    input_error("{}: tensor {} has the dtype {}, expected F32, BF16 or F16", path(), name, t.dtype);
  }
}

}  // namespace compact
