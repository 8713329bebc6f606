#pragma once
#include <cstdint>
#include <string_view>

namespace compact {

/// Element types. The names are those of the safetensors format. F64 is for sums over a step only.
enum class DType : std::uint8_t { F32, BF16, I32, F64 };

constexpr std::int64_t size_of(DType t) { return t == DType::BF16 ? 2 : t == DType::F64 ? 8 : 4; }

constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::F32:
      return "F32";
    case DType::BF16:
      return "BF16";
    case DType::I32:
      return "I32";
    case DType::F64:
      return "F64";
  }
  return "?";
}

}  // namespace compact
