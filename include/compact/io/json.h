#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace compact {

/// One value of a JSON text, with the place it came from, so that every later complaint can name file and
/// line.
struct JsonValue {
  enum class Kind { Null, Boolean, Number, Text, List, Object };
  Kind kind = Kind::Null;
  bool boolean = false;
  double number = 0;               ///< Number
  std::string text;                ///< Text: the value. Number: as it was written
  std::vector<std::string> names;  ///< Object: the keys in file order, each once
  std::vector<JsonValue> items;    ///< List: the items. Object: the value of each key
  std::int64_t line = 0;           ///< 0 where the text is no file (a value of the command line)
  std::shared_ptr<const std::string> source;

  /// The value of a key of an Object, or nullptr.
  const JsonValue* find(std::string_view name) const;
  JsonValue* find(std::string_view name);
  /// "run.json line 12"
  std::string where() const;
  /// The value as JSON for a message, cut when long.
  std::string shown() const;
};

/// Reads one JSON text, strictly: no comments, no trailing commas, each key once, no number beyond a double,
/// at most 64 levels deep. A UTF-8 byte order mark is passed over. Throws InputError with `name`, line and
/// column.
JsonValue parse_json(std::string_view text, const std::string& name);

/// A text in double quotes with JSON's escapes.
std::string json_quoted(std::string_view text);

/// The bounds of a number; an open bound is itself not allowed.
struct JsonBounds {
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
  bool open_low = false;
  bool open_high = false;
  bool hold(double value) const;
  /// "from 0 to below 1", "above 0"; empty when there are none.
  std::string text() const;
};

/// Throws InputError: "run.json line 3: train.steps is true, but must be an integer of at least 1".
[[noreturn]] void refuse_json(const JsonValue& value, std::string_view key, std::string_view expected);

/// The value of a key as a plain type, or InputError. A number counts as an integer when it is whole (1e6).
std::int64_t json_integer(const JsonValue& value, std::string_view key, const JsonBounds& bounds);
std::uint64_t json_unsigned(const JsonValue& value, std::string_view key);
double json_number(const JsonValue& value, std::string_view key, const JsonBounds& bounds);
bool json_boolean(const JsonValue& value, std::string_view key);
const std::string& json_text(const JsonValue& value, std::string_view key);

/// What an integer or a number within bounds is called in messages and in the reference page.
std::string integer_within(const JsonBounds& bounds);
std::string number_within(const JsonBounds& bounds);

/// A double in the shortest form that reads back to the same value, whatever the locale; "1.0", not "1".
std::string json_number_text(double value);

}  // namespace compact
