#include "checkpoint_names.h"

#include <algorithm>
#include <charconv>

#include "compact/io/checkpoint.h"

namespace compact {

std::optional<std::int64_t> step_of_checkpoint_name(std::string_view name) {
  constexpr std::string_view start = "step_";
  if (!name.starts_with(start)) return std::nullopt;
  const std::string_view digits = name.substr(start.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  // Writing the name again refuses too few digits and superfluous zeros.
  if (error != std::errc{} || step < 0 || end != digits.data() + digits.size() ||
      checkpoint_name(step) != name)
    return std::nullopt;
  return step;
}

bool is_checkpoint_file(std::string_view name) {
  constexpr std::string_view names[] = {"config.json", "model.safetensors", "optimizer.safetensors",
                                        "state.json", "MANIFEST.json"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::filesystem::path without_slash(const std::string& path) {
  std::string text = path;
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::filesystem::path parent_of(const std::filesystem::path& path) {
  const std::filesystem::path parent = path.parent_path();
  return parent.empty() ? "." : parent;
}

}  // namespace compact
