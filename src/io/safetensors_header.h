#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "compact/io/safetensors.h"

namespace compact {

/// What the JSON header of a safetensors file says. `begin` and `end` count from the start of the data.
struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Parses the header. `path` names the file in messages. Checks JSON, kinds of values, names used twice,
/// types and sizes of numbers. Throws InputError.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text);

/// Checks that the tensors fill `data_bytes` bytes: sizes as shape and type say, no overlap, gap or trailing
/// bytes.
void check_safetensors_layout(const std::string& path, const SafetensorsHeader& header,
                              std::int64_t data_bytes);

/// Bytes of one element of a type of the format; 0 for an unknown name.
std::int64_t safetensors_dtype_bytes(std::string_view dtype);

}  // namespace compact
