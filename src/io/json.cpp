#include "compact/io/json.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "compact/core/error.h"
#include "json_explain.h"

namespace compact {
namespace {

constexpr std::size_t kMaxDepth = 64;

// Walks over the text and tells how far the parser has read: its events carry no position of their own.
struct Cursor {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  const char* at;
  const char** read_to;
  reference operator*() const { return *at; }
  Cursor& operator++() {
    *read_to = ++at;
    return *this;
  }
  Cursor operator++(int) {
    Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at == other.at; }
  bool operator!=(const Cursor& other) const { return at != other.at; }
};

// Builds the tree from nlohmann's events. It throws as soon as something is wrong, so that the parser's own
// words are never shown.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(std::string_view text, std::string name)
      : text_(text), source_(std::make_shared<const std::string>(std::move(name))), read_to_(text.data()) {}

  const char** read_to() { return &read_to_; }
  JsonValue take_root() { return std::move(root_); }

  bool null() override {
    add(JsonValue::Kind::Null);
    return true;
  }
  bool boolean(bool value) override {
    add(JsonValue::Kind::Boolean).boolean = value;
    return true;
  }
  bool number_integer(number_integer_t value) override {
    add_number(static_cast<double>(value), std::to_string(value));
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    add_number(static_cast<double>(value), std::to_string(value));
    return true;
  }
  bool number_float(number_float_t, const string_t& written) override {
    double value = 0;  // read again: the parser's own conversion depends on the locale
    std::from_chars(written.data(), written.data() + written.size(), value);
    add_number(value, written);
    return true;
  }
  bool string(string_t& value) override {
    add(JsonValue::Kind::Text).text = std::move(value);
    return true;
  }
  bool binary(binary_t&) override { bug("JSON text cannot hold binary values"); }
  bool start_object(std::size_t) override { return open(JsonValue::Kind::Object); }
  bool start_array(std::size_t) override { return open(JsonValue::Kind::List); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    JsonValue& object = *open_.back();
    key_line_ = line(token_end(JsonValue::Kind::Text));
    if (!keys_.back().insert(name).second) {
      input_error("{} line {}: the key {} is given a second time (first on line {}); remove one of the two",
                  *source_, key_line_, json_quoted(shortened(name)), object.find(name)->line);
    }
    object.names.push_back(std::move(name));
    after_key_ = true;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;
    JsonMistake mistake{text_, position, last_good_};
    mistake.number_too_large = error.id == kOutOfRange;
    const std::string_view words = error.what();
    mistake.bad_text = words.find("invalid string") != std::string_view::npos;
    mistake.bad_utf8 = mistake.bad_text && words.find("UTF-8") != std::string_view::npos;
    mistake.open_levels = open_.size();
    mistake.root_done = root_done_;
    mistake.after_key = after_key_;
    mistake.in_object = !open_.empty() && open_.back()->kind == JsonValue::Kind::Object;
    throw InputError(explain_json_mistake(mistake, *source_));
  }

 private:
  std::size_t offset() const { return static_cast<std::size_t>(read_to_ - text_.data()); }

  // The end of the token of this event. The parser looks one character beyond a number, if there is one.
  std::size_t token_end(JsonValue::Kind kind) {
    last_good_ = offset();
    const char last = text_[last_good_ - 1];
    const bool looked_beyond = last_good_ < text_.size() || last < '0' || last > '9';
    if (kind == JsonValue::Kind::Number && looked_beyond) --last_good_;
    return last_good_;
  }

  // The line of the character before `read`. Counts on from the last call, so a text is gone through once.
  std::int64_t line(std::size_t read) {
    for (; counted_ + 1 < read; ++counted_) line_ += text_[counted_] == '\n';
    return line_;
  }

  JsonValue& add(JsonValue::Kind kind) {
    JsonValue value;
    value.kind = kind;
    value.source = source_;
    const std::size_t end = token_end(kind);
    value.line = after_key_ ? key_line_ : line(end);
    after_key_ = false;
    if (open_.empty()) {
      root_ = std::move(value);
      root_done_ = true;
      return root_;
    }
    open_.back()->items.push_back(std::move(value));
    return open_.back()->items.back();
  }
  void add_number(double value, std::string written) {
    JsonValue& added = add(JsonValue::Kind::Number);
    added.number = value;
    added.text = std::move(written);
  }
  bool open(JsonValue::Kind kind) {
    if (open_.size() == kMaxDepth) {
      input_error("{} line {}: brackets are nested more than {} levels deep", *source_, line(offset()),
                  kMaxDepth);
    }
    open_.push_back(&add(kind));  // stays valid: its parent gets no further item before this one is closed
    keys_.emplace_back();
    root_done_ = false;
    return true;
  }
  bool close() {
    last_good_ = offset();
    open_.pop_back();
    keys_.pop_back();
    root_done_ = open_.empty();
    return true;
  }

  std::string_view text_;
  std::shared_ptr<const std::string> source_;
  const char* read_to_;
  JsonValue root_;
  std::vector<JsonValue*> open_;
  std::vector<std::unordered_set<std::string>> keys_;  // of each open object
  std::size_t counted_ = 0;                            // characters whose line ends are in line_
  std::int64_t line_ = 1;
  std::size_t last_good_ = 0;  // where the last token that was fine ends
  std::int64_t key_line_ = 0;
  bool after_key_ = false;
  bool root_done_ = false;
};

}  // namespace

JsonValue parse_json(std::string_view text, const std::string& name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  refuse_what_is_no_text(text, name);
  TreeBuilder builder(text, name);
  const Cursor first{text.data(), builder.read_to()};
  const Cursor last{text.data() + text.size(), builder.read_to()};
  nlohmann::json::sax_parse(first, last, &builder);
  return builder.take_root();
}

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\r':
        quoted += "\\r";
        break;
      case '\t':
        quoted += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
          quoted += c;
        }
    }
  }
  return quoted + '"';
}

std::string json_number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos)
    text += ".0";  // readers in other languages tell 1 from 1.0
  return text;
}

const JsonValue* JsonValue::find(std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? nullptr : &items[static_cast<std::size_t>(found - names.begin())];
}

JsonValue* JsonValue::find(std::string_view name) {
  return const_cast<JsonValue*>(std::as_const(*this).find(name));
}

std::string JsonValue::where() const {
  if (!source) return "JSON";
  return line > 0 ? fmt::format("{} line {}", *source, line) : *source;
}

std::string JsonValue::shown() const {
  switch (kind) {
    case Kind::Null:
      return "null";
    case Kind::Boolean:
      return boolean ? "true" : "false";
    case Kind::Number:
      return shortened(text);
    case Kind::Text:
      return shortened(json_quoted(text));
    case Kind::Object:
      return "an object in braces";
    case Kind::List:
      break;
  }
  std::string list = "[";
  for (std::size_t i = 0; i < items.size() && list.size() < 60; ++i)
    list += (i ? ", " : "") + items[i].shown();
  return shortened(list + "]");
}

}  // namespace compact
