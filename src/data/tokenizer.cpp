#include "compact/data/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>

#include "compact/core/error.h"
#include "compact/io/file.h"
#include "src/data/utf8.h"

namespace compact {
namespace {

constexpr std::size_t kSpan = 4 << 10;
// SentencePiece takes some 500 bytes of memory for a byte of text, so a text that offers no place to cut is
// cut anyway; of a model that offers none at all, only where a document would be cut too.
constexpr std::size_t kLongestSpan = 64 << 10, kLongestUncut = 1 << 20;
constexpr std::string_view kSpaceMark =
    "\xE2\x96\x81";  // U+2581, how SentencePiece writes a space in its pieces

// What a file that is no SentencePiece model looks like, for the message.
std::string other_format(std::string_view bytes) {
  if (bytes.empty()) return "an empty file";
  if (bytes.substr(0, 8) == "#version") return "a list of BPE merges";
  if (bytes[0] == '{' || bytes[0] == '[') return "a JSON file";
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  const std::size_t space = line.find(' ');
  const auto is_base64 = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '=';
  };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (space != line.npos && space > 0 && space + 1 < line.size() &&
      std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(space), is_base64) &&
      std::all_of(line.begin() + static_cast<std::ptrdiff_t>(space) + 1, line.end(), is_digit))
    return "a tiktoken file";
  return "";
}

// Whether a piece goes on across a space or a newline that is not at its start.
bool reaches_across(std::string_view piece, std::string_view mark) {
  std::size_t at = piece.find(mark);
  while (at == 0) {  // a run at the start is no crossing
    piece.remove_prefix(mark.size());
    at = piece.find(mark);
  }
  return at != piece.npos;
}

}  // namespace

struct Tokenizer::Model {
  sentencepiece::SentencePieceProcessor processor;
  int space_mark = -1;        // id of the piece that is a space alone
  bool dummy_prefix = false;  // the model puts a space before the first word
  bool newline_is_space = false;
  bool cut_at_space = false, cut_at_newline = false;
};

Tokenizer::Tokenizer(const std::string& path) : path_(path), model_(std::make_unique<Model>()) {
  const std::string bytes = read_text(path);
  auto& p = model_->processor;
  const std::string other = other_format(bytes);
  if (!other.empty()) input_error("{} is {}, a SentencePiece model is needed as tokenizer", path, other);
  if (!p.LoadFromSerializedProto(bytes).ok() || p.GetPieceSize() <= 0)
    input_error("{} is no SentencePiece model, or it is damaged ({} bytes); get it again", path,
                bytes.size());

  bool crosses_space = false, crosses_newline = false;
  for (int id = 0; id < p.GetPieceSize(); ++id) {
    if (p.IsControl(id) || p.IsUnknown(id) || p.IsByte(id)) continue;
    const std::string& piece = p.IdToPiece(id);
    if (piece == kSpaceMark) model_->space_mark = id;
    crosses_space = crosses_space || reaches_across(piece, kSpaceMark) || piece.find(' ') != piece.npos;
    crosses_newline = crosses_newline || (piece.size() > 1 && piece.find('\n') != piece.npos);
  }
  // The rest is read off the model's behaviour, which its settings, normalizer and version all shape.
  const auto ids = [&](std::string_view text) {
    std::vector<std::int32_t> out;
    encode_span(text, false, out);
    return out;
  };
  const std::vector<std::int32_t> word = ids("a");
  model_->dummy_prefix =
      !word.empty() && std::string_view(p.IdToPiece(word[0])).substr(0, kSpaceMark.size()) == kSpaceMark;
  model_->newline_is_space = ids("a\nb") == ids("a b");
  const auto joined = [&](std::string_view front, std::string_view back) {
    std::vector<std::int32_t> out = ids(front);
    encode_span(back, true, out);
    return out;
  };
  model_->cut_at_space =
      !crosses_space && model_->space_mark >= 0 && joined("ab, c", " de f") == ids("ab, c de f");
  model_->cut_at_newline = !crosses_space && !crosses_newline && model_->space_mark >= 0 &&
                           joined("ab, c", "\nde f") == ids("ab, c\nde f") &&
                           joined("ab, c\n", "\n de f") == ids("ab, c\n\n de f");
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

std::int64_t Tokenizer::vocab_size() const { return model_->processor.GetPieceSize(); }
std::int32_t Tokenizer::bos() const { return model_->processor.bos_id(); }
std::int32_t Tokenizer::eos() const { return model_->processor.eos_id(); }
std::int32_t Tokenizer::pad() const { return model_->processor.pad_id(); }

void Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  bool continues = false;
  for (const std::string_view span : split(text)) {
    encode_span(span, continues, ids);
    continues = true;
  }
}

std::vector<std::string_view> Tokenizer::split(std::string_view text) const {
  std::vector<std::string_view> spans;
  const std::size_t longest = model_->cut_at_space || model_->cut_at_newline ? kLongestSpan : kLongestUncut;
  std::size_t size = kSpan;
  while (text.size() > size) {
    std::size_t place = last_cut(text.substr(0, size));
    if (place == 0 && size < longest) {
      size *= 2;
      continue;
    }
    if (place == 0) place = last_break(text.substr(0, size));
    spans.push_back(text.substr(0, place));
    text.remove_prefix(place);
    size = kSpan;
  }
  spans.push_back(text);
  return spans;
}

std::size_t Tokenizer::last_cut(std::string_view text) const {
  for (std::size_t i = text.size() < 2 ? 0 : text.size() - 2; i > 0; --i) {
    // In front of a run of spaces, never inside: there are pieces of several spaces.
    if (text[i] == ' ' && model_->cut_at_space && text[i - 1] != ' ') return i;
    if (text[i] == '\n' && model_->cut_at_newline) return i;
  }
  return 0;
}

void Tokenizer::encode_span(std::string_view text, bool continues, std::vector<std::int32_t>& ids) const {
  const Model& m = *model_;
  bool drop_mark = false;
  if (continues && m.dummy_prefix && !text.empty()) {
    // The model's own space in front stands for the one that is there, or is one too many.
    if (text[0] == ' ' || (text[0] == '\n' && m.newline_is_space))
      text.remove_prefix(1);
    else
      drop_mark = true;
  }
  std::vector<int> out;
  const auto status = m.processor.Encode({text.data(), text.size()}, &out);
  if (!status.ok()) input_error("{} cannot encode a text of {} bytes", path_, text.size());
  const bool dropped = drop_mark && !out.empty() && out[0] == m.space_mark;
  ids.insert(ids.end(), out.begin() + (dropped ? 1 : 0), out.end());
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids) const {
  for (const std::int32_t id : ids)
    if (id < 0 || id >= vocab_size())
      input_error("token id {} is outside the vocabulary of {} ({} ids)", id, path_, vocab_size());
  std::string text;
  if (!model_->processor.Decode(ids, &text).ok()) input_error("{} cannot decode {} ids", path_, ids.size());
  return valid_utf8(text);
}

}  // namespace compact
