#include "data_testing.h"

namespace compact {
namespace {

namespace fs = std::filesystem;

class TrainTokenizer : public FolderTest {
 protected:
  std::string refused(std::int64_t vocab_size, const std::string& text) {
    put_file(at("in.txt"), text);
    return message_of<InputError>([&] { train_tokenizer(vocab_size, at("t"), {at("in.txt")}); });
  }
  double bytes_per_token(const std::string& model, const std::string& text) {
    std::vector<std::int32_t> ids;
    Tokenizer(model).encode(text, ids);
    return static_cast<double>(text.size()) / static_cast<double>(ids.size());
  }
};

TEST_F(TrainTokenizer, WritesModelAndVocabularyTheSameEachTime) {
  put_file(at("in.txt"), story(500));
  train_tokenizer(330, at("new/a"), {at("in.txt")});
  train_tokenizer(330, at("new/b"), {at("in.txt")});
  EXPECT_EQ(bytes_of_file(at("new/a.model")), bytes_of_file(at("new/b.model")));
  const std::string vocabulary = bytes_of_file(at("new/a.vocab"));
  EXPECT_EQ(std::count(vocabulary.begin(), vocabulary.end(), '\n'), 330);
  EXPECT_EQ(Tokenizer(at("new/a.model")).vocab_size(), 330);
}

TEST_F(TrainTokenizer, LongLinesAreUsed) {
  std::string text = story(600);
  put_file(at("short.txt"), text);
  std::replace(text.begin(), text.end(), '\n', ' ');
  put_file(at("long.txt"), text);  // one line of 40 KB
  train_tokenizer(340, at("s"), {at("short.txt")});
  train_tokenizer(340, at("l"), {at("long.txt")});
  EXPECT_NEAR(bytes_per_token(at("l.model"), text), bytes_per_token(at("s.model"), text), 0.4);
  EXPECT_GT(bytes_per_token(at("l.model"), text), 2.5);  // 1 if the line had been left out
}

TEST_F(TrainTokenizer, ReadsJsonLinesAndGzip) {
  put_file(at("a.jsonl"), "{\"text\": \"" + std::string("yellow river stone ") + "\"}\n");
  put_file(at("b.txt.gz"), gzip(story(300)));
  train_tokenizer(330, at("t"), {at("a.jsonl"), at("b.txt.gz")});
  EXPECT_TRUE(fs::exists(at("t.model")));
}

TEST_F(TrainTokenizer, WhatCannotBeIsSaid) {
  expect_has(refused(300, ""), {"in.txt", "no text"});
  expect_has(refused(300, " \n\n"), {"in.txt", "no text"});
  expect_has(refused(50000, "Three short sentences. They are here. The end."),
             {"--vocab-size 50000", "at most"});
  expect_has(refused(261, story(100)), {"--vocab-size 261", "too small"});
  expect_has(refused(260, story(100)), {"--vocab-size", "260"});
  expect_has(message_of<InputError>([&] { train_tokenizer(300, at("t"), {at("gone.txt")}); }), {"gone.txt"});
  EXPECT_FALSE(fs::exists(at("t.model")));
  EXPECT_FALSE(fs::exists(at("t.vocab")));
}

TEST_F(TrainTokenizer, SaysNothingOnStandardError) {
  put_file(at("in.txt"), story(300));
  ::testing::internal::CaptureStderr();
  train_tokenizer(330, at("t"), {at("in.txt")});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace compact
