#include "json_explain.h"

#include <algorithm>
#include <cctype>

#include "compact/core/error.h"
#include "compact/io/json.h"

namespace compact {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '+' || c == '.';
}
bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::size_t skip_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

// The last character before `at` that is not white space, or 0.
char before(std::string_view text, std::size_t at) {
  while (at > 0 && is_space(text[at - 1])) --at;
  return at > 0 ? text[at - 1] : '\0';
}

// Where the token starts that could not be used: behind the last good one, and behind the colon or comma that
// may follow that.
std::size_t token_start(const JsonMistake& m) {
  const std::size_t start = skip_spaces(m.text, m.last_good);
  const char previous = before(m.text, start);
  const bool separator_may_follow = m.after_key || (m.open_levels > 0 && previous != '{' && previous != '[');
  if (!separator_may_follow || start >= m.text.size() || m.text[start] != (m.after_key ? ':' : ','))
    return start;
  return skip_spaces(m.text, start + 1);
}

// The whole token: a text in quotes, a word or number, or one character.
std::string_view token_at(std::string_view text, std::size_t start) {
  if (start >= text.size()) return {};
  std::size_t stop = start + 1;
  if (text[start] == '"') {
    while (stop < text.size() && text[stop] != '"' && text[stop] != '\n') stop += text[stop] == '\\' ? 2 : 1;
    stop = std::min(stop + 1, text.size());
  } else if (in_word(text[start])) {
    while (stop < text.size() && in_word(text[stop])) ++stop;
  } else {
    while (stop < text.size() && continues_character(text[stop])) ++stop;
  }
  return text.substr(start, stop - start);
}

std::string expected_instead(const JsonMistake& m, char previous) {
  if (m.after_key) return previous == ':' ? "a value" : "a colon";
  if (m.open_levels == 0) return m.root_done ? "the end of the file" : "a JSON text, which starts with {";
  if (previous == ',' || previous == '{' || previous == '[')
    return m.in_object ? "a key in double quotes" : "a value";
  return m.in_object ? "a comma or '}'" : "a comma or ']'";
}

// What is wrong inside a text in quotes.
std::string text_mistake(const JsonMistake& m) {
  if (m.bad_utf8) return "a text is not valid UTF-8";
  const char c = m.text[m.read - 1];
  if (c == '\n' || c == '\r') return "a text is not closed before the end of its line";
  if (static_cast<unsigned char>(c) < 0x20)
    return "a control character stands in a text; write it as an escape";
  return "a backslash in a text starts no escape that JSON has; write \\\\ for the backslash itself";
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return result;
}

std::string sentence(const JsonMistake& m, std::size_t& start) {
  start = token_start(m);
  const std::string_view token = token_at(m.text, start);
  const char previous = before(m.text, start);
  const char c = token.empty() ? '\0' : token.front();
  if (m.number_too_large) return fmt::format("the number {} is too large", shortened(token));
  if (m.read > m.text.size() && c == '"') return "the file ends within a text in quotes; is it cut off?";
  if (m.read > m.text.size() && (c == '\0' || in_word(c))) {
    return fmt::format("the file ends too early, with {} bracket{} still open; is it cut off?", m.open_levels,
                       m.open_levels == 1 ? "" : "s");
  }
  if (m.bad_text) {
    start = m.read - 1;
    return text_mistake(m);
  }
  if ((c == '}' || c == ']') && previous == ',')
    return fmt::format("trailing comma before '{}'; remove the comma", c);
  if (c == '\'') return "single quotes; JSON wants double quotes";
  if (c == '/' || c == '#') return "comments are not part of JSON; remove it";
  const std::string word = lower(token.substr(c == '-' || c == '+' ? 1 : 0));
  if (word == "nan" || word == "inf" || word == "infinity") {
    return fmt::format("{} is no JSON number; write a finite one", token);
  }
  if (token == "True" || token == "False") return fmt::format("{} is written {} in JSON", token, word);
  if (token == "None") return "None is written null in JSON";
  const std::string shown = c == '"' ? shortened(token) : json_quoted(shortened(token));
  return fmt::format("found {}, but expected {}", shown, expected_instead(m, previous));
}

}  // namespace

std::int64_t line_of(std::string_view text, std::size_t offset) {
  const std::string_view part = text.substr(0, offset == 0 ? 0 : offset - 1);
  return 1 + std::count(part.begin(), part.end(), '\n');
}

std::string shortened(std::string_view text) {
  constexpr std::size_t kLimit = 60;
  if (text.size() <= kLimit) return std::string(text);
  std::size_t cut = kLimit - 3;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return std::string(text.substr(0, cut)) + "...";
}

std::string explain_json_mistake(const JsonMistake& mistake, const std::string& name) {
  std::size_t start = 0;
  const std::string what = sentence(mistake, start);
  const std::size_t line_start = start == 0 ? 0 : mistake.text.rfind('\n', start - 1) + 1;  // npos + 1 is 0
  return fmt::format("{} line {}, column {}: {}", name, line_of(mistake.text, start + 1),
                     start - line_start + 1, what);
}

void refuse_what_is_no_text(std::string_view text, const std::string& name) {
  if (std::all_of(text.begin(), text.end(), is_space))
    input_error("{} is empty, but a JSON text was expected", name);
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    input_error("{} is UTF-16, but JSON is read as UTF-8; save it as UTF-8", name);
  }
  if (text.find('\0') != std::string_view::npos) {
    input_error("{} is a binary file, but a JSON text was expected", name);
  }
}

}  // namespace compact
