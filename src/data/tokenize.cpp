#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <limits>

#include "compact/core/error.h"
#include "compact/data/token_shard.h"
#include "compact/data/tokenizer.h"
#include "compact/io/file.h"
#include "src/data/byte_reader.h"
#include "src/data/document_reader.h"
#include "src/data/shard_writer.h"
#include "src/data/utf8.h"

namespace compact {
namespace {

constexpr std::size_t kBatch = 1 << 20;

void check(const TokenizeOptions& o) {
  if (!(o.val_fraction >= 0.0 && o.val_fraction < 1.0))
    input_error("--val-fraction must be at least 0 and below 1, found {}", o.val_fraction);
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (o.shard_tokens < 1 || o.shard_tokens > kMost)
    input_error("--shard-tokens must be from 1 to {}, found {}", kMost, o.shard_tokens);
  if (o.rows != 0 && (o.rows < 2 || o.rows > o.shard_tokens))
    input_error("--rows must be from 2 to --shard-tokens ({}), found {}", o.shard_tokens, o.rows);
  if (o.inputs.empty()) input_error("no input is given; name text files, or - for standard input");
  for (const std::string& input : o.inputs) check_input(input);
  const std::string name = split_prefix(o.out_prefix).second;
  if (name.empty() || name == "." || name == "..")
    input_error("--out {} names no files; give a folder and the start of a name, such as data/text",
                o.out_prefix);
  if (valid_utf8(name) != name) input_error("--out {} is not valid UTF-8", o.out_prefix);
}

std::string joined_names(const std::vector<std::string>& inputs) {
  std::string names;
  for (const std::string& input : inputs) names += (names.empty() ? "" : ", ") + input_name(input);
  return names;
}

/// Encodes pieces of documents, several at a time on all cores, and lays the documents out as tokens.
class TokenizeRun {
 public:
  TokenizeRun(const TokenizeOptions& options, const Tokenizer& tokenizer, const ShardFormat& format,
              std::int32_t padding)
      : options_(options),
        tokenizer_(tokenizer),
        format_(format),
        padding_(padding),
        train_(options.out_prefix, "train", format),
        val_(options.out_prefix, "val", format) {}

  void read(const std::string& input) {
    DocumentReader reader(input, &tokenizer_);
    DocumentReader::Piece piece;
    while (reader.next(piece)) {
      pending_ += piece.text.size();
      pieces_.push_back(std::move(piece));
      if (pending_ >= kBatch) encode_pending();
    }
    encode_pending();
  }

  /// Closes all shards; returns the entries of the manifest and fills in the result.
  std::vector<DataManifest::Entry> finish(TokenizeResult& result);

 private:
  struct Span {
    std::string_view text;
    bool continues = false;
    std::vector<std::int32_t> ids;
  };
  void encode_pending();
  ShardWriter& target();
  void add(const std::vector<std::int32_t>& ids);
  void end_document();
  void make_val_from_tail();

  const TokenizeOptions& options_;
  const Tokenizer& tokenizer_;
  const ShardFormat format_;
  const std::int32_t padding_;
  ShardWriter train_, val_;
  std::vector<DocumentReader::Piece> pieces_;
  std::size_t pending_ = 0;  // bytes in pieces_
  std::int64_t documents_ = 0, bytes_ = 0;
  bool open_ = false;              // the current document has tokens
  std::vector<std::int32_t> row_;  // of the current document
};

void TokenizeRun::encode_pending() {
  std::vector<Span> spans;
  std::vector<std::size_t> last_span;  // of each piece
  for (const DocumentReader::Piece& piece : pieces_) {
    bool continues = !piece.begins;
    for (const std::string_view text : tokenizer_.split(piece.text)) {
      spans.push_back({text, continues, {}});
      continues = true;
    }
    last_span.push_back(spans.size());
  }
  std::exception_ptr failed;
#pragma omp parallel for schedule(dynamic, 1)
  for (std::size_t i = 0; i < spans.size(); ++i) {
    try {
      tokenizer_.encode_span(spans[i].text, spans[i].continues, spans[i].ids);
    } catch (...) {
#pragma omp critical
      failed = std::current_exception();
    }
  }
  if (failed) std::rethrow_exception(failed);
  std::size_t at = 0;
  for (std::size_t k = 0; k < pieces_.size(); ++k) {
    for (; at < last_span[k]; ++at) add(spans[at].ids);
    if (pieces_[k].ends) end_document();
  }
  bytes_ += static_cast<std::int64_t>(pending_);
  pieces_.clear();
  pending_ = 0;
}

void TokenizeRun::add(const std::vector<std::int32_t>& ids) {
  if (ids.empty()) return;
  open_ = true;
  if (options_.rows == 0) {
    target().add(ids.data(), static_cast<std::int64_t>(ids.size()));
  } else {
    const auto room = static_cast<std::size_t>(options_.rows) - row_.size();
    row_.insert(row_.end(), ids.begin(),
                ids.begin() + static_cast<std::ptrdiff_t>(std::min(room, ids.size())));
  }
}

// Whole documents go to train or val, spread evenly: of the first n, floor(n * fraction) are val.
ShardWriter& TokenizeRun::target() {
  const double k = static_cast<double>(documents_);
  return std::floor((k + 1.0) * options_.val_fraction) > std::floor(k * options_.val_fraction) ? val_
                                                                                               : train_;
}

void TokenizeRun::end_document() {
  if (!open_) return;  // nothing in it that the tokenizer knows a token for
  if (options_.rows == 0) {
    target().add(&format_.end_of_text, 1);
  } else {
    const auto length = static_cast<std::size_t>(options_.rows);
    if (row_.size() < length) row_.push_back(format_.end_of_text);
    row_.resize(length, padding_);
    target().add(row_.data(), options_.rows);
    row_.clear();
  }
  open_ = false;
  ++documents_;
}

// Too few documents for a whole one to be val: the end of the text is, or the last rows.
void TokenizeRun::make_val_from_tail() {
  const std::int64_t unit = std::max<std::int64_t>(options_.rows, 1), units = train_.tokens() / unit;
  if (units < 2)
    input_error(
        "{} holds one document, so --rows {} with --val-fraction {} leaves nothing to train on; give more "
        "documents or no --val-fraction",
        joined_names(options_.inputs), options_.rows, options_.val_fraction);
  const auto wanted = static_cast<std::int64_t>(static_cast<double>(units) * options_.val_fraction);
  train_.move_tail(std::clamp<std::int64_t>(wanted, 1, units - 1) * unit, val_);
}

std::vector<DataManifest::Entry> TokenizeRun::finish(TokenizeResult& result) {
  train_.finish();
  val_.finish();
  if (documents_ == 0) input_error("there is no text in {}", joined_names(options_.inputs));
  if (options_.val_fraction > 0.0 && val_.tokens() == 0) make_val_from_tail();
  result.documents = documents_;
  result.bytes = bytes_;
  result.train_tokens = train_.tokens();
  result.val_tokens = val_.tokens();
  remove_old_shards(options_.out_prefix);
  std::vector<DataManifest::Entry> entries = train_.publish();
  for (DataManifest::Entry& entry : val_.publish()) entries.push_back(std::move(entry));
  return entries;
}

// The tokenizer goes along with the data: PREFIX_tokenizer.model, a copy unless it is that file already.
std::string copy_tokenizer(const TokenizeOptions& options) {
  const std::string copy = options.out_prefix + "_tokenizer.model";
  std::error_code code;
  if (!std::filesystem::equivalent(options.tokenizer, copy, code))
    write_text_atomically(copy, read_text(options.tokenizer));
  return copy;
}

}  // namespace

TokenizeResult tokenize(const TokenizeOptions& options) {
  check(options);
  const Tokenizer tokenizer(options.tokenizer);
  const std::int32_t end = tokenizer.eos() >= 0 ? tokenizer.eos() : tokenizer.bos();
  if (end < 0)
    input_error(
        "the tokenizer {} has neither an end nor a begin symbol, so documents could not be told apart",
        options.tokenizer);
  const auto [folder, name] = split_prefix(options.out_prefix);
  make_folders(folder);
  remove_stale_shards(options.out_prefix);

  ShardFormat format;
  format.vocab_size = tokenizer.vocab_size();
  format.row_length = options.rows;
  format.shard_tokens = options.shard_tokens - options.shard_tokens % std::max<std::int64_t>(options.rows, 1);
  format.end_of_text = end;
  DataManifest manifest;
  manifest.path = options.out_prefix + ".json";
  manifest.vocab_size = format.vocab_size;
  manifest.end_of_text = end;
  manifest.rows = options.rows > 0;
  manifest.row_length = options.rows;
  manifest.padding_id = tokenizer.pad() >= 0 ? tokenizer.pad() : end;

  TokenizeRun run(options, tokenizer, format, static_cast<std::int32_t>(manifest.padding_id));
  for (const std::string& input : options.inputs) run.read(input);
  TokenizeResult result;
  const std::string copy = copy_tokenizer(options);
  manifest.tokenizer_file = split_prefix(copy).second;
  manifest.tokenizer_xxh3 = xxh3_of_file(copy);
  manifest.shards = run.finish(result);
  write_manifest(manifest);

  for (const DataManifest::Entry& entry : manifest.shards)
    result.files.push_back((std::filesystem::path(options.out_prefix).parent_path() / entry.file).string());
  result.files.push_back(copy);
  result.files.push_back(manifest.path);
  return result;
}

}  // namespace compact
