#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace compact {

/// A SentencePiece model as it comes (T5, Llama, our own).
class Tokenizer {
 public:
  /// Throws InputError naming the file when it is missing or no SentencePiece model (a tiktoken or merges
  /// file is named as what it is).
  explicit Tokenizer(const std::string& path);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  std::int64_t vocab_size() const;
  std::int32_t bos() const;  ///< -1 where the model has none
  std::int32_t eos() const;  ///< -1 where the model has none
  std::int32_t pad() const;  ///< -1 where the model has none
  const std::string& path() const { return path_; }
  /// Appends the ids of `text`. Control symbols inside the text are text: never turned into control ids.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const;
  /// The text of `ids`, always valid UTF-8. Ids outside the vocabulary are an InputError.
  std::string decode(const std::vector<std::int32_t>& ids) const;

  /// `text` cut into spans of about 4 KiB whose ids, appended in turn, are those of the whole: cuts are made
  /// in front of a space or newline, and only where no piece of this model can reach across. (SentencePiece
  /// itself adds up scores in single precision, which goes wrong at some words of a text of more than some 10
  /// KB; spans do not.) A stretch of 64 KiB without such a place (noise, mostly) is cut at a newline, a space
  /// or between two characters, which may cost a token there, as may a cut next to U+2581, SentencePiece's
  /// own mark for a space; a model that offers no place at all gets up to 1 MiB at once.
  std::vector<std::string_view> split(std::string_view text) const;
  /// The last such place in `text` (above 0), or 0 where there is none.
  std::size_t last_cut(std::string_view text) const;
  /// Appends the ids of one span. `continues`: text stood before it, so the model's space in front of the
  /// first word is left out unless the span begins with one.
  void encode_span(std::string_view text, bool continues, std::vector<std::int32_t>& ids) const;

 private:
  struct Model;
  std::string path_;
  std::unique_ptr<Model> model_;
};

struct TokenizeOptions {
  std::string tokenizer, out_prefix;
  double val_fraction = 0.0;  ///< of the documents
  std::int64_t rows = 0;      ///< > 0: one document a row of this many tokens, cut and padded; 0: packed
  std::int64_t shard_tokens = 100'000'000;
  std::vector<std::string> inputs;  ///< files, or "-"
};

struct TokenizeResult {
  std::int64_t documents = 0, train_tokens = 0, val_tokens = 0, bytes = 0;
  std::vector<std::string> files;
};

/// The command `compact tokenize` (design, section 6). Bounded memory; writes shards and, last, the manifest.
/// On failure no manifest is left. Throws InputError / RunError.
TokenizeResult tokenize(const TokenizeOptions& options);

/// The command `compact tokenizer-train`: writes NAME.model and NAME.vocab (unigram, byte fallback). Throws.
void train_tokenizer(std::int64_t vocab_size, const std::string& name,
                     const std::vector<std::string>& inputs);

}  // namespace compact
