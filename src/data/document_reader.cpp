#include "src/data/document_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compact/core/error.h"

namespace compact {
namespace {

constexpr std::string_view kSeparator = "<|endoftext|>";
constexpr std::string_view kWhite = " \t\n\r\v\f";
constexpr std::size_t kBlock = 64 << 10;
constexpr std::size_t kPiece = 1 << 20;
constexpr std::size_t kJsonLine = 64 << 20;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

// ---- lines ------------------------------------------------------------------------------------------

LineReader::LineReader(const std::string& input) : bytes_(input) {}

void LineReader::check_encoding() {
  const std::string_view start = buffer_;
  if (start.substr(0, 2) == "\xFF\xFE" || start.substr(0, 2) == "\xFE\xFF")
    input_error("{} is UTF-16 text, UTF-8 is needed; convert it: iconv -f UTF-16 -t UTF-8", name());
  // UTF-16 without a mark: half the bytes of Latin text are zero.
  const auto zeros = std::count(start.begin(), start.end(), '\0');
  if (zeros > 0 && static_cast<std::size_t>(zeros) * 4 > start.size())
    input_error("{} is no UTF-8 text: {} of its first {} bytes are zero (UTF-16, or a binary file)", name(),
                zeros, start.size());
}

void LineReader::fill() {
  buffer_.erase(0, begin_);
  scanned_ -= begin_;
  begin_ = 0;
  const std::size_t old = buffer_.size();
  buffer_.resize(old + kBlock);
  const std::size_t n = bytes_.read(buffer_.data() + old, kBlock);
  buffer_.resize(old + n);
  at_end_ = n == 0;
  if (first_) check_encoding();
  if (!checker_.accept(std::string_view(buffer_).substr(old)) || (at_end_ && !checker_.complete()))
    input_error("{} is not valid UTF-8 at byte offset {}; convert it to UTF-8 or repair it", name(),
                checker_.bad_offset());
  // A file shorter than the mark comes whole in the first block; a pipe may give less, then the next block
  // completes.
  if (first_ && (buffer_.size() >= 3 || at_end_)) {
    if (std::string_view(buffer_).substr(0, 3) == "\xEF\xBB\xBF") begin_ = scanned_ = 3;
    first_ = false;
  }
}

bool LineReader::next(Part& part) {
  while (first_) fill();
  for (;;) {
    const std::size_t newline = buffer_.find('\n', std::max(begin_, scanned_));
    std::size_t end = newline;
    bool ends = true;
    std::size_t after = newline + 1;
    if (newline == std::string::npos) {
      scanned_ = buffer_.size();
      if (at_end_) {
        if (begin_ == buffer_.size() && line_begins_) return false;  // else the line's last part is still due
        end = after = buffer_.size();
      } else if (buffer_.size() - begin_ >= kBlock) {
        // A carriage return stays back until it is known whether a newline follows it.
        end = after = buffer_.size() - (buffer_.back() == '\r' ? 1 : 0);
        ends = false;
      } else {
        fill();
        continue;
      }
    }
    part.text = std::string_view(buffer_).substr(begin_, end - begin_);
    if (ends && !part.text.empty() && part.text.back() == '\r') part.text.remove_suffix(1);
    part.begins = line_begins_;
    part.ends = line_begins_ = ends;
    part.newline = newline != std::string::npos;
    begin_ = after;
    return true;
  }
}

// ---- documents ----------------------------------------------------------------------------------------

DocumentReader::DocumentReader(const std::string& input, const Tokenizer* tokenizer)
    : lines_(input),
      tokenizer_(tokenizer),
      json_(ends_with(input, ".jsonl") || ends_with(input, ".jsonl.gz")) {}

void DocumentReader::append(std::string_view text) {
  if (!has_text_) has_text_ = text.find_first_not_of(kWhite) != std::string_view::npos;
  document_ += text;
}

// Reads until the document is complete or longer than a piece; false at the end of the input.
bool DocumentReader::read_text() {
  LineReader::Part part;
  while (document_.size() - given_ <= kPiece) {
    if (!lines_.next(part)) return false;
    if (part.begins && part.ends && part.text == kSeparator) {
      complete_ = true;
      return true;
    }
    append(part.text);
    if (part.newline) append("\n");
  }
  return true;
}

// Reads one line, a whole document; false at the end of the input.
bool DocumentReader::read_json_line() {
  LineReader::Part part;
  std::string line;
  do {
    ++line_;
    line.clear();
    do {
      if (!lines_.next(part)) return false;
      if (line.size() + part.text.size() > kJsonLine)
        input_error("{} line {}: longer than {} MiB, split this document", lines_.name(), line_,
                    kJsonLine >> 20);
      line += part.text;
    } while (!part.ends);
  } while (line.find_first_not_of(kWhite) == std::string::npos);
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& error) {
    input_error("{} line {}: not valid JSON near byte {} of the line; each line must be one JSON object",
                lines_.name(), line_, error.byte);
  }
  if (!value.is_object())
    input_error("{} line {}: expected a JSON object with a \"text\" field, found a value of type {}",
                lines_.name(), line_, value.type_name());
  const auto text = value.find("text");
  if (text == value.end()) input_error("{} line {}: the object has no field \"text\"", lines_.name(), line_);
  if (!text->is_string())
    input_error("{} line {}: \"text\" must be a string, found a value of type {}", lines_.name(), line_,
                text->type_name());
  const auto& content = text->get_ref<const std::string&>();
  std::size_t at = 0;
  for (std::size_t end; (end = content.find("\r\n", at)) != std::string::npos; at = end + 1)
    append(std::string_view(content).substr(at, end - at));
  append(std::string_view(content).substr(at));
  complete_ = true;
  return true;
}

// Where to cut a document that is longer than a piece: where the tokens stay the same if there is such a
// place.
std::size_t DocumentReader::cut(std::string_view text) const {
  text = text.substr(0, kPiece);
  const std::size_t place = tokenizer_ ? tokenizer_->last_cut(text) : 0;
  return place > 0 ? place : last_break(text);
}

bool DocumentReader::next(Piece& piece) {
  for (;;) {
    if (!complete_ && document_.size() - given_ <= kPiece) {
      if (!(json_ ? read_json_line() : read_text())) {
        if (document_.empty()) return false;
        complete_ = true;
      }
    }
    const std::string_view rest = std::string_view(document_).substr(given_);
    const bool ends = complete_ && rest.size() <= kPiece;
    const std::size_t size = ends ? rest.size() : cut(rest);
    // White space before the first word waits for it, unless there is more than a piece of it.
    const bool give = has_text_ && (begun_ || rest.substr(0, size).find_first_not_of(kWhite) != rest.npos);
    if (give) {
      piece.text = rest.substr(0, size);
      piece.begins = !begun_;
      piece.ends = ends;
      begun_ = true;
    }
    given_ += size;
    if (ends) {
      document_.clear();
      given_ = 0;
      complete_ = begun_ = has_text_ = false;
    } else if (!complete_) {
      document_.erase(0, given_);
      given_ = 0;
    }
    if (give) return true;
  }
}

}  // namespace compact
