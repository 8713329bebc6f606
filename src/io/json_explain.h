#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace compact {

/// Where and in what state the JSON parser gave up.
struct JsonMistake {
  std::string_view text;      ///< the whole text
  std::size_t read = 0;       ///< characters read so far; above text.size() when the end was read
  std::size_t last_good = 0;  ///< end of the last bracket, key or value that was fine
  bool number_too_large = false;
  bool bad_text = false;  ///< the mistake is inside a text in quotes
  bool bad_utf8 = false;
  std::size_t open_levels = 0;  ///< brackets and braces not yet closed
  bool root_done = false;       ///< a whole value came before
  bool after_key = false;       ///< the last token that was fine is a key
  bool in_object = false;       ///< the innermost open level is in braces
};

/// One sentence with name, line and column that says what is wrong.
std::string explain_json_mistake(const JsonMistake& mistake, const std::string& name);

/// Throws InputError for what cannot be a JSON text at all: nothing, a binary file, UTF-16.
void refuse_what_is_no_text(std::string_view text, const std::string& name);

/// The line, counted from 1, of the character before `offset`.
std::int64_t line_of(std::string_view text, std::size_t offset);

/// At most 60 bytes of a text, cut between characters, with "..." where something is left out.
std::string shortened(std::string_view text);

}  // namespace compact
