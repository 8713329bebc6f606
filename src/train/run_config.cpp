#include "compact/train/run_config.h"

#include <cmath>
#include <set>

#include "compact/core/error.h"
#include "compact/io/file.h"
#include "run_checks.h"
#include "run_schema.h"

namespace compact {
namespace {

constexpr std::int64_t kMaxFileBytes = 1 << 20;

[[noreturn]] void refuse_unknown(const std::string& where, const std::string& path) {
  input_error("{}: unknown key {}; {}", where, json_quoted(path), hint_for_unknown_key(path));
}

// Reads the members of one level into the config and notes which keys were there.
void read_level(const JsonValue& object, const std::string& prefix, RunConfig& config,
                std::set<std::string>& seen) {
  for (std::size_t i = 0; i < object.names.size(); ++i) {
    const JsonValue& value = object.items[i];
    const std::string path = prefix + object.names[i];
    // A key with a dot in its own name is no path: sections are written as objects.
    const bool has_dot = object.names[i].find('.') != std::string::npos;
    if (has_dot && find_run_key(path)) {
      input_error("{}: {} is written as an object: \"{}\": {{\"{}\": {}}}", value.where(), json_quoted(path),
                  find_run_key(path)->section(), find_run_key(path)->name(), value.shown());
    }
    if (const RunKey* key = has_dot ? nullptr : find_run_key(path)) {
      read_run_key(*key, value, config);
      seen.insert(path);
    } else if (prefix.empty() && !about_section(path).empty()) {
      if (value.kind != JsonValue::Kind::Object) refuse_json(value, path, "a section: an object in braces");
      read_level(value, path + ".", config, seen);
    } else {
      refuse_unknown(value.where(), path);
    }
  }
}

RunConfig read_tree(const JsonValue& root, const std::string& name, int ranks) {
  if (root.kind != JsonValue::Kind::Object) {
    input_error("{} holds {}, but a run file is an object in braces", name, root.shown());
  }
  RunConfig config;
  std::set<std::string> seen;
  read_level(root, "", config, seen);
  for (const RunKey& key : run_keys()) {
    if (key.required && !seen.contains(std::string(key.path))) {
      input_error("{}: the key {} is missing: {}", name, key.path, accepted_text(key));
    }
  }
  check_run_config(config, name, ranks);
  return config;
}

// The value of an override: JSON where it is JSON, else the bare text. A key that holds a text takes any
// value as it stands, so that an out_dir may be called 2024.
JsonValue override_value(const RunKey& key, const std::string& text, const std::string& source) {
  RunConfig any;
  const bool wants_text = std::holds_alternative<std::string*>(key.field(any));
  try {
    JsonValue value = parse_json(text, source);
    if (!wants_text || value.kind == JsonValue::Kind::Text) return value;
  } catch (const InputError&) {
    // Not JSON: a bare text.
  }
  try {
    return parse_json(json_quoted(text), source);
  } catch (const InputError&) {
    input_error("{}: the value is not valid UTF-8", source);
  }
}

// Values of the command line have no line.
void forget_lines(JsonValue& value) {
  value.line = 0;
  for (JsonValue& item : value.items) forget_lines(item);
}

JsonValue& member(JsonValue& object, std::string_view name) {
  if (JsonValue* found = object.find(name)) return *found;
  object.names.emplace_back(name);
  return object.items.emplace_back();
}

void apply_override(JsonValue& root, const std::string& text) {
  const std::string source = fmt::format("override '{}'", text);
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    input_error("{}: an override is written key.path=value, for instance optimizer.lr=0.001", source);
  }
  const std::string path = text.substr(0, equals);
  const RunKey* key = find_run_key(path);
  if (!key) {
    const std::string first = path.substr(0, path.find('.'));
    if (first != path && find_run_key(first))
      input_error("{}: {} is a single value, not a section", source, first);
    if (!about_section(path).empty())
      input_error("{}: {} is a section; set its keys one by one", source, path);
    refuse_unknown(source, path);
  }
  JsonValue value = override_value(*key, text.substr(equals + 1), source);
  forget_lines(value);
  JsonValue* level = &root;
  if (!key->section().empty()) {
    level = &member(root, key->section());
    if (level->kind == JsonValue::Kind::Null && !level->source)
      level->kind = JsonValue::Kind::Object;             // just made
    if (level->kind != JsonValue::Kind::Object) return;  // read_tree names the section
  }
  member(*level, key->name()) = std::move(value);
}

}  // namespace

std::int64_t Period::steps(std::int64_t total_steps, std::int64_t tokens_per_step) const {
  double exact = value;
  if (unit == Unit::Tokens) exact = value / static_cast<double>(tokens_per_step);
  if (unit == Unit::Percent) exact = static_cast<double>(total_steps) * value / 100;
  // 32.3 % of 1,000 is 323, although doubles make it a little less.
  constexpr double kSlack = 1e-9;
  const double whole = std::round(exact);
  if (std::abs(exact - whole) <= kSlack * std::max(1.0, whole)) return static_cast<std::int64_t>(whole);
  return static_cast<std::int64_t>(std::floor(exact));
}

RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides, int ranks) {
  JsonValue root = parse_json(read_text(path, kMaxFileBytes), path);
  if (root.kind == JsonValue::Kind::Object) {
    for (const std::string& text : overrides) apply_override(root, text);
  }
  return read_tree(root, path, ranks);
}

RunConfig parse_run_config(std::string_view json_text, const std::string& name, int ranks) {
  return read_tree(parse_json(json_text, name), name, ranks);
}

std::string resolved_json(const RunConfig& config) {
  std::string text = "{";
  std::string_view open_section;
  std::string_view comma;
  for (const RunKey& key : run_keys()) {
    const std::string_view section = key.section();
    if (section != open_section) {
      if (!open_section.empty()) text += "\n  }";
      if (!section.empty()) {
        text += fmt::format("{}\n  \"{}\": {{", comma, section);
        comma = "";
      }
      open_section = section;
    }
    text += fmt::format("{}\n{}\"{}\": {}", comma, section.empty() ? "  " : "    ", key.name(),
                        run_key_json(key, config));
    comma = ",";
  }
  return text + (open_section.empty() ? "\n}\n" : "\n  }\n}\n");
}

std::vector<ConfigDifference> compare_configs(const RunConfig& was, const RunConfig& now) {
  std::vector<ConfigDifference> differences;
  for (const RunKey& key : run_keys()) {
    ConfigDifference difference{std::string(key.path), run_key_json(key, was), run_key_json(key, now),
                                key.may_change};
    if (difference.was == difference.now) continue;
    if (!run_key_matters(key, was) && !run_key_matters(key, now)) difference.may_change = true;
    differences.push_back(std::move(difference));
  }
  return differences;
}

std::vector<std::string> unused_settings(const RunConfig& config) {
  const RunConfig defaults;
  std::vector<std::string> unused;
  for (const RunKey& key : run_keys()) {
    if (!run_key_matters(key, config) && run_key_json(key, config) != run_key_json(key, defaults)) {
      unused.emplace_back(key.path);
    }
  }
  return unused;
}

}  // namespace compact
