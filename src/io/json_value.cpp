#include <charconv>
#include <cmath>
#include <system_error>

#include "compact/core/error.h"
#include "compact/io/json.h"

namespace compact {
namespace {

// A bound as people write it: whole numbers in full up to a million million.
std::string bound_text(double bound) {
  if (bound == std::floor(bound) && std::abs(bound) < 1e15) {
    return fmt::format("{}", static_cast<std::int64_t>(bound));
  }
  return json_number_text(bound);
}

// The number as a 64-bit integer: exact from its digits, or from a double that is whole ("1e6").
template <typename Integer>
bool read_integer(const JsonValue& value, Integer& result) {
  const char* first = value.text.data();
  const char* last = first + value.text.size();
  const auto [end, error] = std::from_chars(first, last, result);
  if (error == std::errc() && end == last) return true;
  constexpr double kExact = 9007199254740992.0;  // 2^53: above, a double no longer holds every integer
  if (value.number != std::floor(value.number) || std::abs(value.number) > kExact) return false;
  if (std::is_unsigned_v<Integer> && value.number < 0) return false;
  result = static_cast<Integer>(value.number);
  return true;
}

}  // namespace

bool JsonBounds::hold(double value) const {
  return (open_low ? value > lowest : value >= lowest) && (open_high ? value < highest : value <= highest);
}

std::string JsonBounds::text() const {
  const bool low = std::isfinite(lowest), high = std::isfinite(highest);
  if (low && high) {
    return fmt::format("{} {} {} {}", open_low ? "above" : "from", bound_text(lowest),
                       open_high ? "to below" : "to", bound_text(highest));
  }
  if (low) return fmt::format("{} {}", open_low ? "above" : "of at least", bound_text(lowest));
  if (high) return fmt::format("{} {}", open_high ? "below" : "of at most", bound_text(highest));
  return "";
}

std::string integer_within(const JsonBounds& bounds) {
  const std::string text = bounds.text();
  return text.empty() ? "an integer" : "an integer " + text;
}

std::string number_within(const JsonBounds& bounds) {
  const std::string text = bounds.text();
  return text.empty() ? "a number" : "a number " + text;
}

void refuse_json(const JsonValue& value, std::string_view key, std::string_view expected) {
  const bool number_in_quotes =
      value.kind == JsonValue::Kind::Text && expected.find("number") != std::string::npos;
  input_error("{}: {} is {}, but must be {}{}", value.where(), key, value.shown(), expected,
              number_in_quotes ? " (numbers stand without quotes)" : "");
}

std::int64_t json_integer(const JsonValue& value, std::string_view key, const JsonBounds& bounds) {
  std::int64_t result = 0;
  if (value.kind != JsonValue::Kind::Number || !read_integer(value, result) ||
      !bounds.hold(static_cast<double>(result))) {
    refuse_json(value, key, integer_within(bounds));
  }
  return result;
}

std::uint64_t json_unsigned(const JsonValue& value, std::string_view key) {
  std::uint64_t result = 0;
  if (value.kind != JsonValue::Kind::Number || !read_integer(value, result)) {
    refuse_json(value, key, "an integer from 0 to 18446744073709551615");
  }
  return result;
}

double json_number(const JsonValue& value, std::string_view key, const JsonBounds& bounds) {
  if (value.kind != JsonValue::Kind::Number || !bounds.hold(value.number)) {
    refuse_json(value, key, number_within(bounds));
  }
  return value.number;
}

bool json_boolean(const JsonValue& value, std::string_view key) {
  if (value.kind != JsonValue::Kind::Boolean) refuse_json(value, key, "true or false");
  return value.boolean;
}

const std::string& json_text(const JsonValue& value, std::string_view key) {
  if (value.kind != JsonValue::Kind::Text) refuse_json(value, key, "a text in double quotes");
  if (value.text.find('\0') != std::string::npos) refuse_json(value, key, "a text without NUL characters");
  return value.text;
}

}  // namespace compact
