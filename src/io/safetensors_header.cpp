#include "safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "compact/core/error.h"

namespace compact {

namespace {

constexpr std::size_t longest_name = 512;
constexpr std::size_t most_dimensions = 16;

/// A text of the file for a message: cut, control characters written out.
std::string shown(std::string_view text) {
  std::string s;
  for (const char c : text.substr(0, 120)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      s += fmt::format("\\x{:02x}", byte);
    } else {
      s += c;
    }
  }
  return text.size() > 120 ? s + "..." : s;
}

/// Follows the parser's events through the only form a header may have, so that nothing is built that is not
/// asked for and a name used twice is seen (a JSON tree keeps the last one silently).
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderHandler(const std::string& path) : path_(path) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { unexpected(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) override { unexpected(shown(text)); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::Array || value > std::numeric_limits<std::int64_t>::max())
      unexpected(fmt::format("{}", value));
    if (numbers_.size() == most_dimensions)
      input_error("{}: tensor {} has a {} of more than {} numbers", path_, name_, key_, most_dimensions);
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::Metadata && !key_.empty()) {
      header_.metadata.emplace(key_, std::move(value));
      return true;
    }
    if (place_ != Place::Tensor || key_ != "dtype") unexpected(fmt::format("\"{}\"", shown(value)));
    if (safetensors_dtype_bytes(value) == 0)
      input_error("{}: tensor {} has the unknown dtype \"{}\"", path_, name_, shown(value));
    tensor_.dtype = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::Start) {
      place_ = Place::Top;
    } else if (place_ == Place::Top && name_ == "__metadata__") {
      place_ = Place::Metadata;
      key_.clear();
    } else if (place_ == Place::Top) {
      place_ = Place::Tensor;
      tensor_ = {};
      seen_ = {};
      key_.clear();
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (place_ == Place::Top) {
      start_tensor(value);
    } else if (place_ == Place::Metadata) {
      if (header_.metadata.contains(value))
        input_error("{}: the metadata name {} is in the header twice", path_, shown(value));
      key_ = std::move(value);
    } else {
      const auto known = std::find(keys.begin(), keys.end(), value);
      if (known == keys.end())
        input_error("{}: tensor {} has the unknown key \"{}\" (dtype, shape and data_offsets are possible)",
                    path_, name_, shown(value));
      bool& seen = seen_[static_cast<std::size_t>(known - keys.begin())];
      if (seen) input_error("{}: tensor {} has the key {} twice", path_, name_, value);
      seen = true;
      key_ = std::move(value);
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::Tensor) {
      for (std::size_t i = 0; i < keys.size(); ++i)
        if (!seen_[i]) input_error("{}: tensor {} has no {}", path_, name_, keys[i]);
      header_.tensors.emplace(name_, std::move(tensor_));
    }
    place_ = place_ == Place::Top ? Place::Start : Place::Top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::Tensor || (key_ != "shape" && key_ != "data_offsets")) unexpected("an array");
    place_ = Place::Array;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    place_ = Place::Tensor;
    if (key_ == "shape") {
      tensor_.shape = std::move(numbers_);
      numbers_ = {};
    } else if (numbers_.size() == 2) {
      tensor_.begin = numbers_[0];
      tensor_.end = numbers_[1];
    } else {
      input_error("{}: tensor {} has data_offsets of {} numbers instead of 2", path_, name_, numbers_.size());
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    // The header begins at byte 8; the parser counts from 1.
    input_error("{}: the header is no valid JSON at byte {}, so this is no safetensors file or it is damaged",
                path_, 8 + (position > 0 ? position - 1 : 0));
  }

 private:
  enum class Place { Start, Top, Metadata, Tensor, Array };
  static constexpr std::array<std::string_view, 3> keys = {"dtype", "shape", "data_offsets"};

  void start_tensor(std::string& name) {
    if (name.empty()) input_error("{}: a tensor in the header has an empty name", path_);
    if (name.size() > longest_name)
      input_error("{}: the tensor name {} has {} bytes, more than the {} that are possible", path_,
                  shown(name), name.size(), longest_name);
    // Names go into messages and to the terminal as they are.
    if (std::any_of(name.begin(), name.end(),
                    [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
      input_error("{}: the tensor name {} holds a control character", path_, shown(name));
    if (header_.tensors.contains(name) || (name == "__metadata__" && metadata_seen_))
      input_error("{}: {} is in the header twice", path_, name);
    metadata_seen_ = metadata_seen_ || name == "__metadata__";
    name_ = std::move(name);
  }

  [[noreturn]] void unexpected(const std::string& found) const {
    switch (place_) {
      case Place::Start:
        input_error("{}: the header is not an object of tensors but {}", path_, found);
      case Place::Top:
        input_error("{}: {} in the header is not an object but {}", path_, name_, found);
      case Place::Metadata:
        input_error("{}: the metadata {} is not a text but {}", path_, shown(key_), found);
      case Place::Tensor:
        input_error("{}: tensor {} has the {} {}, expected {}", path_, name_, key_, found,
                    key_ == "dtype" ? "a text" : "a list of whole numbers");
      case Place::Array:
        input_error("{}: tensor {} has {} in its {}, expected whole numbers from 0 to 2^63 - 1", path_, name_,
                    found, key_);
    }
    bug("safetensors header: unknown place");
  }

  std::string path_;
  SafetensorsHeader header_;
  Place place_ = Place::Start;
  std::string name_, key_;  ///< the tensor, and the key inside it, that is being read
  StoredTensor tensor_;
  std::array<bool, 3> seen_{};
  std::vector<std::int64_t> numbers_;
  bool metadata_seen_ = false;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Bytes that shape and type ask for. Throws where 64 bits do not hold them.
std::int64_t bytes_of(const std::string& path, const std::string& name, const StoredTensor& t) {
  std::int64_t bytes = safetensors_dtype_bytes(t.dtype);
  // A zero anywhere makes the product zero, however large the others are.
  if (std::find(t.shape.begin(), t.shape.end(), 0) != t.shape.end()) return 0;
  for (const std::int64_t d : t.shape)
    if (__builtin_mul_overflow(bytes, d, &bytes))
      input_error("{}: tensor {} of shape {} needs more bytes than 64 bits can count", path, name,
                  shape_text(t.shape));
  return bytes;
}

}  // namespace

std::int64_t safetensors_dtype_bytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, std::int64_t> known[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  for (const auto& [name, bytes] : known)
    if (name == dtype) return bytes;
  return 0;
}

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text) {
  HeaderHandler handler(path);
  nlohmann::json::sax_parse(text, &handler);
  return handler.take();
}

void check_safetensors_layout(const std::string& path, const SafetensorsHeader& header,
                              std::int64_t data_bytes) {
  std::vector<std::pair<const std::string*, const StoredTensor*>> order;
  for (const auto& [name, t] : header.tensors) {
    if (t.end < t.begin)
      input_error("{}: tensor {} begins at byte {} of the data, after its end at {}", path, name, t.begin,
                  t.end);
    if (t.end > data_bytes)
      input_error("{}: tensor {} ends at byte {} of the data, but the file holds only {}; it may be cut off",
                  path, name, t.end, data_bytes);
    const std::int64_t bytes = bytes_of(path, name, t);
    if (t.end - t.begin != bytes)
      input_error("{}: tensor {} of type {} and shape {} needs {} bytes, its data_offsets give {}", path,
                  name, t.dtype, shape_text(t.shape), bytes, t.end - t.begin);
    order.emplace_back(&name, &t);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  std::int64_t end = 0;
  const std::string* before = nullptr;
  for (const auto& [name, t] : order) {
    if (t->begin < end)
      input_error("{}: tensors {} and {} overlap: one ends at byte {} of the data, the other begins at {}",
                  path, *before, *name, end, t->begin);
    if (t->begin > end)
      input_error("{}: {} bytes before tensor {} belong to no tensor", path, t->begin - end, *name);
    end = t->end;
    before = name;
  }
  if (end != data_bytes)
    input_error("{}: {} bytes after the last tensor belong to no tensor", path, data_bytes - end);
}

}  // namespace compact
