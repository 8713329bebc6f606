#pragma once
#include <string_view>

namespace compact {

/// Where ops run. `Plan` runs the same step code without computing and without memory: every op checks its
/// arguments, takes its workspace and returns.
enum class Device { Cpu, Cuda, Plan };

constexpr std::string_view name_of(Device d) {
  return d == Device::Cpu ? "cpu" : d == Device::Cuda ? "cuda" : "plan";
}

}  // namespace compact
