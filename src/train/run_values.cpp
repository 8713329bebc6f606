#include <algorithm>
#include <charconv>
#include <cmath>

#include "compact/core/error.h"
#include "run_schema.h"

namespace compact {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

constexpr std::string_view kPeriodText =
    "steps (100 or \"100s\"), tokens (\"1e6t\") or a part of the run (\"10%\", at most \"100%\")";

std::string quoted_choices(const RunKey& key) {
  std::vector<std::string> quoted;
  for (const std::string_view choice : key.choices) quoted.push_back(json_quoted(choice));
  return either_of({quoted.begin(), quoted.end()});
}

bool period_is_fine(const Period& period) {
  constexpr double kMaxSteps = 1e9;
  constexpr double kMaxTokens = 9e18;
  if (!(period.value >= 0)) return false;
  switch (period.unit) {
    case Period::Unit::Steps:
      return period.value == std::floor(period.value) && period.value <= kMaxSteps;
    case Period::Unit::Tokens:
      return period.value <= kMaxTokens;
    case Period::Unit::Percent:
      return period.value <= 100;
  }
  return false;
}

// "1e6t" into a period; false where the text is none.
bool parse_period(std::string_view text, Period& period) {
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, period.value);
  if (error != std::errc() || last - end != 1) return false;
  switch (*end) {
    case 's':
      period.unit = Period::Unit::Steps;
      return true;
    case 't':
      period.unit = Period::Unit::Tokens;
      return true;
    case '%':
      period.unit = Period::Unit::Percent;
      return true;
    default:
      return false;
  }
}

Period read_period(const RunKey& key, const JsonValue& value) {
  Period period;
  bool fine = value.kind == JsonValue::Kind::Number;
  if (fine) {
    period.value = value.number;
  } else {
    fine = value.kind == JsonValue::Kind::Text && parse_period(value.text, period);
  }
  if (!fine || !period_is_fine(period)) refuse_json(value, key.path, accepted_text(key));
  return period;
}

std::string read_text_key(const RunKey& key, const JsonValue& value) {
  const bool is_text = value.kind == JsonValue::Kind::Text;
  const bool empty = is_text && value.text.empty();
  const bool chosen = key.choices.empty() || (is_text && std::find(key.choices.begin(), key.choices.end(),
                                                                   value.text) != key.choices.end());
  if (!is_text || !chosen || (empty && key.required)) refuse_json(value, key.path, accepted_text(key));
  return json_text(value, key.path);
}

// A list of choices, each at most once, in the order of the schema whatever the order in the file.
std::vector<std::string> read_choices(const RunKey& key, const JsonValue& value) {
  if (value.kind != JsonValue::Kind::List || value.items.empty())
    refuse_json(value, key.path, accepted_text(key));
  std::vector<std::string> chosen;
  for (const JsonValue& item : value.items) {
    const bool known = item.kind == JsonValue::Kind::Text &&
                       std::find(key.choices.begin(), key.choices.end(), item.text) != key.choices.end();
    if (!known) {
      input_error("{}: {} holds {}, but must be {}", item.where(), key.path, item.shown(),
                  accepted_text(key));
    }
    if (std::find(chosen.begin(), chosen.end(), item.text) != chosen.end()) {
      input_error("{}: {} holds {} twice; remove one of the two", item.where(), key.path, item.shown());
    }
    chosen.push_back(item.text);
  }
  const auto place = [&key](const std::string& text) {
    return std::find(key.choices.begin(), key.choices.end(), text);
  };
  std::sort(chosen.begin(), chosen.end(),
            [&place](const std::string& a, const std::string& b) { return place(a) < place(b); });
  return chosen;
}

std::array<double, 2> read_pair(const RunKey& key, const JsonValue& value) {
  if (value.kind != JsonValue::Kind::List || value.items.size() != 2)
    refuse_json(value, key.path, accepted_text(key));
  std::array<double, 2> pair{};
  for (std::size_t i = 0; i < 2; ++i) {
    const JsonValue& item = value.items[i];
    if (item.kind != JsonValue::Kind::Number || !key.bounds.hold(item.number)) {
      input_error("{}: {} holds {}, but must be {}", item.where(), key.path, item.shown(),
                  accepted_text(key));
    }
    pair[i] = item.number;
  }
  return pair;
}

// The kind of a key's field alone; the pointer itself is not used.
RunField kind_of(const RunKey& key) {
  static RunConfig any;
  return key.field(any);
}

}  // namespace

std::string either_of(const std::vector<std::string_view>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::string accepted_text(const RunKey& key) {
  return std::visit(
      Overloaded{
          [](const bool*) { return std::string("true or false"); },
          [&](const std::int64_t*) { return integer_within(key.bounds); },
          [&](const std::uint64_t*) { return std::string("an integer from 0 to 18446744073709551615"); },
          [&](const double*) { return number_within(key.bounds); },
          [&](const std::string*) {
            if (!key.choices.empty()) return quoted_choices(key);
            return std::string(key.required ? "a text in double quotes, not empty"
                                            : "a text in double quotes");
          },
          [&](const Period*) { return std::string(kPeriodText); },
          [&](const std::array<double, 2>*) { return "a list of two numbers " + key.bounds.text(); },
          [&](const std::optional<double>*) { return number_within(key.bounds) + ", or null"; },
          [&](const std::optional<std::int64_t>*) { return integer_within(key.bounds) + ", or null"; },
          [&](const std::vector<std::string>*) { return "a list of one or more of " + quoted_choices(key); },
      },
      kind_of(key));
}

void read_run_key(const RunKey& key, const JsonValue& value, RunConfig& config) {
  const bool null = value.kind == JsonValue::Kind::Null;
  std::visit(Overloaded{
                 [&](bool* to) { *to = json_boolean(value, key.path); },
                 [&](std::int64_t* to) { *to = json_integer(value, key.path, key.bounds); },
                 [&](std::uint64_t* to) { *to = json_unsigned(value, key.path); },
                 [&](double* to) { *to = json_number(value, key.path, key.bounds); },
                 [&](std::string* to) { *to = read_text_key(key, value); },
                 [&](Period* to) { *to = read_period(key, value); },
                 [&](std::array<double, 2>* to) { *to = read_pair(key, value); },
                 [&](std::optional<double>* to) {
                   to->reset();
                   if (null) return;
                   if (value.kind != JsonValue::Kind::Number)
                     refuse_json(value, key.path, accepted_text(key));
                   *to = json_number(value, key.path, key.bounds);
                 },
                 [&](std::optional<std::int64_t>* to) {
                   to->reset();
                   if (null) return;
                   if (value.kind != JsonValue::Kind::Number)
                     refuse_json(value, key.path, accepted_text(key));
                   *to = json_integer(value, key.path, key.bounds);
                 },
                 [&](std::vector<std::string>* to) { *to = read_choices(key, value); },
             },
             key.field(config));
}

std::string run_key_json(const RunKey& key, const RunConfig& config) {
  RunConfig copy = config;
  return std::visit(
      Overloaded{
          [](const bool* value) { return std::string(*value ? "true" : "false"); },
          [](const std::int64_t* value) { return std::to_string(*value); },
          [](const std::uint64_t* value) { return std::to_string(*value); },
          [](const double* value) { return json_number_text(*value); },
          [](const std::string* value) { return json_quoted(*value); },
          [](const Period* value) {
            if (value->unit == Period::Unit::Steps)
              return std::to_string(static_cast<std::int64_t>(value->value));
            return fmt::format("\"{}{}\"", value->value, value->unit == Period::Unit::Tokens ? 't' : '%');
          },
          [](const std::array<double, 2>* value) {
            return fmt::format("[{}, {}]", json_number_text((*value)[0]), json_number_text((*value)[1]));
          },
          [](const std::optional<double>* value) { return *value ? json_number_text(**value) : "null"; },
          [](const std::optional<std::int64_t>* value) { return *value ? std::to_string(**value) : "null"; },
          [](const std::vector<std::string>* value) {
            std::string list = "[";
            for (const std::string& text : *value) list += (list.size() > 1 ? ", " : "") + json_quoted(text);
            return list + "]";
          },
      },
      key.field(copy));
}

bool run_key_matters(const RunKey& key, const RunConfig& config) {
  // A second condition that no other key has: a weight with a master is rounded from it, to nearest.
  if (key.path == "optimizer.rounding" && config.optimizer.master_weights) return false;
  if (key.when.of.empty()) return true;
  RunConfig copy = config;
  const std::string& value = *std::get<std::string*>(find_run_key(key.when.of)->field(copy));
  return std::find(key.when.values.begin(), key.when.values.end(), value) != key.when.values.end();
}

}  // namespace compact
