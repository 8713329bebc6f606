#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <regex>
#include <unordered_map>

#include "compact/core/error.h"
#include "compact/data/tokenizer.h"
#include "compact/io/file.h"
#include "src/data/document_reader.h"
#include "src/data/shard_writer.h"

namespace compact {
namespace {

constexpr std::size_t kSentence = 4096;         // the trainer leaves longer ones out, so they are cut
constexpr std::size_t kSampleBytes = 32 << 20;  // text that the trainer sees at most

/// An even sample of the sentences of all inputs, in order. When it gets too large, every second sentence is
/// dropped and from then on only every second one is taken: no randomness, one pass, bounded memory.
class Sample {
 public:
  void add(std::string_view sentence) {
    if (seen_++ % stride_ != 0) return;
    sentences_.emplace_back(sentence);
    bytes_ += sentence.size();
    while (bytes_ > kSampleBytes && sentences_.size() > 1) thin();
  }
  const std::vector<std::string>& sentences() const { return sentences_; }

 private:
  void thin() {
    std::size_t kept = 0;
    bytes_ = 0;
    for (std::size_t i = 0; i < sentences_.size(); i += 2) {
      bytes_ += sentences_[i].size();
      if (i != kept) sentences_[kept] = std::move(sentences_[i]);
      ++kept;
    }
    sentences_.resize(kept);
    stride_ *= 2;
  }
  std::vector<std::string> sentences_;
  std::size_t bytes_ = 0;
  std::uint64_t seen_ = 0, stride_ = 1;
};

class SampleIterator : public sentencepiece::SentenceIterator {
 public:
  explicit SampleIterator(const std::vector<std::string>& sentences) : sentences_(sentences) {}
  bool done() const override { return at_ >= sentences_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return sentences_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& sentences_;
  std::size_t at_ = 0;
};

// Cuts a line into sentences at spaces; where there is none, at the last whole character.
void add_line(std::string_view line, Sample& sample) {
  while (!line.empty()) {
    std::size_t end = line.size();
    if (end > kSentence) {
      end = line.rfind(' ', kSentence);
      if (end == line.npos || end == 0) {
        end = kSentence;
        while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
      }
    }
    const std::string_view sentence = line.substr(0, end);
    if (sentence.find_first_not_of(" \t") != sentence.npos) sample.add(sentence);
    line.remove_prefix(end);
  }
}

void read_input(const std::string& input, Sample& sample) {
  DocumentReader reader(input, nullptr);
  DocumentReader::Piece piece;
  while (reader.next(piece)) {
    std::string_view text = piece.text;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      add_line(text.substr(0, end), sample);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
}

// SentencePiece names the largest or smallest possible vocabulary in its message and nowhere else.
[[noreturn]] void explain_failure(const std::string& message, std::int64_t vocab_size) {
  std::smatch found;
  if (std::regex_search(message, found, std::regex("size too high.*<= *([0-9]+)")))
    input_error(
        "--vocab-size {} is too large for this text: it gives a vocabulary of at most {}; lower it or give "
        "more "
        "text",
        vocab_size, found[1].str());
  if (std::regex_search(message, found, std::regex("smaller than required_chars.*vs *([0-9]+)")))
    input_error("--vocab-size {} is too small: the characters of this text and the 256 bytes alone need {}",
                vocab_size, found[1].str());
  run_error("training a tokenizer with --vocab-size {} failed: {}", vocab_size, message);
}

std::string vocabulary(const std::string& model, const std::string& path) {
  sentencepiece::SentencePieceProcessor processor;
  if (!processor.LoadFromSerializedProto(model).ok())
    run_error("the trained tokenizer {} does not load", path);
  std::string lines;
  for (int id = 0; id < processor.GetPieceSize(); ++id)
    lines += fmt::format("{}\t{}\n", processor.IdToPiece(id), processor.GetScore(id));
  return lines;
}

}  // namespace

void train_tokenizer(std::int64_t vocab_size, const std::string& name,
                     const std::vector<std::string>& inputs) {
  if (inputs.empty()) input_error("no input is given; name text files, or - for standard input");
  // Below: 4 control symbols, 256 bytes, 1 character.
  if (vocab_size < 261 || vocab_size > 1'000'000)
    input_error("--vocab-size must be from 261 to 1000000, found {}", vocab_size);
  const auto [folder, file] = split_prefix(name);
  if (file.empty() || file == "." || file == "..")
    input_error("--out {} names no file; give a name such as data/tokenizer", name);
  for (const std::string& input : inputs) check_input(input);
  make_folders(folder);
  Sample sample;
  std::string names;
  for (const std::string& input : inputs) {
    read_input(input, sample);
    names += (names.empty() ? "" : ", ") + input_name(input);
  }
  if (sample.sentences().empty()) input_error("there is no text in {}", names);

  // As Llama's own tokenizer in what matters to a language model: nothing of the text is changed (identity,
  // spaces kept, bytes for rare characters), digits stand alone. The number of threads is fixed because it
  // decides the order of sums; without shuffling the trainer draws no random number, so the same text gives
  // the same model.
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", "unigram"},
      {"vocab_size", std::to_string(vocab_size)},
      {"character_coverage", "0.9999"},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"split_digits", "true"},
      {"unk_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"pad_id", "3"},
      {"shuffle_input_sentence", "false"},
      {"max_sentence_length", std::to_string(2 * kSentence)},
      {"num_threads", "16"},
      {"minloglevel", "3"},
  };
  SampleIterator iterator(sample.sentences());
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
  if (!status.ok()) explain_failure(status.ToString(), vocab_size);
  const std::string path = name + ".model";
  const std::string lines = vocabulary(model, path);
  write_text_atomically(name + ".vocab", lines);
  write_text_atomically(path, model);
}

}  // namespace compact
