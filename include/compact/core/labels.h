#pragma once
#include <cstdint>

namespace compact {

/// Label of a position that has no target.
inline constexpr std::int32_t kIgnoreIndex = -100;

}  // namespace compact
