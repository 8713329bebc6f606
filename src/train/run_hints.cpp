#include <algorithm>
#include <cctype>
#include <vector>

#include "compact/core/edit_distance.h"
#include "compact/core/error.h"
#include "run_schema.h"

namespace compact {
namespace {

// How a key is spelt apart from capitals, underscores and hyphens.
std::string plain(std::string_view path) {
  std::string text;
  for (const char c : path) {
    if (c != '_' && c != '-') text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

// The section of the run file, or the top level, in words.
std::string place_of(const RunKey& key) {
  return key.section().empty() ? std::string("at the top level")
                               : fmt::format("in the section {}", key.section());
}

std::string all_of(std::string_view section) {
  std::string list;
  const auto add = [&list](std::string_view name) { list += (list.empty() ? "" : ", ") + std::string(name); };
  for (const RunKey& key : run_keys()) {
    if (key.section() == section) add(key.name());
  }
  if (!section.empty()) return fmt::format("the keys of {} are {}", section, list);
  for (const std::string_view name : run_sections()) add(name);
  return "the keys at the top level are " + list;
}

}  // namespace

std::string hint_for_unknown_key(std::string_view path) {
  constexpr std::size_t kLongestKey = 100;
  const std::size_t dot = path.rfind('.');
  const std::string_view name = dot == std::string_view::npos ? path : path.substr(dot + 1);
  const std::string_view section = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
  const bool section_exists = section.empty() || !about_section(section).empty();
  if (name.empty() || path.size() > kLongestKey) return all_of(section_exists ? section : "");

  std::vector<std::string_view> known = run_sections();
  for (const RunKey& key : run_keys()) known.push_back(key.path);
  for (const std::string_view key : known) {
    if (plain(key) == plain(path)) return fmt::format("did you mean {}?", key);
  }
  std::string elsewhere;
  for (const RunKey& key : run_keys()) {
    if (plain(key.name()) == plain(name)) elsewhere += (elsewhere.empty() ? "" : " or ") + place_of(key);
  }
  if (!elsewhere.empty()) return fmt::format("{} belongs {}", name, elsewhere);

  std::string_view nearest;
  std::size_t fewest = 1 + std::max<std::size_t>(1, name.size() / 3);
  for (const std::string_view key : known) {
    const std::size_t count = edit_distance(plain(path), plain(key));
    if (count < fewest) {
      fewest = count;
      nearest = key;
    }
  }
  if (!nearest.empty()) return fmt::format("did you mean {}?", nearest);
  return all_of(section_exists ? section : "");
}

}  // namespace compact
