#include "compact/data/tokenizer.h"

#include <random>

#include "data_testing.h"

namespace compact {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

class Tokens : public FolderTest {
 protected:
  static Ids encode(const Tokenizer& t, const std::string& text) {
    Ids ids;
    t.encode(text, ids);
    return ids;
  }
  static Ids in_one(const Tokenizer& t, const std::string& text) {
    Ids ids;
    t.encode_span(text, false, ids);
    return ids;
  }
  std::string refused(const std::string& bytes) {
    put_file(at("t.model"), bytes);
    return message_of<InputError>([&] { Tokenizer t(at("t.model")); });
  }
};

TEST_F(Tokens, OurOwnHasTheSymbolsOfLlamaAndPadding) {
  const Tokenizer t(small_tokenizer());
  EXPECT_EQ(t.vocab_size(), 340);
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.eos(), 2);
  EXPECT_EQ(t.pad(), 3);
}

TEST_F(Tokens, OurOwnLosesNothing) {
  const Tokenizer t(small_tokenizer());
  for (const std::string& text :
       {std::string("One day  a girl\nfound\n\n\ta needle. 123"),
        std::string("na\xC3\xAFve \xF0\x9F\x99\x82 \xE6\x97\xA5"), std::string("zero") + '\0' + "byte",
        std::string("\n x"), std::string("trailing \n")})
    EXPECT_EQ(t.decode(encode(t, text)), text);
}

TEST_F(Tokens, ControlSymbolsInsideTextAreText) {
  std::vector<std::string> models = {small_tokenizer()};
  for (const char* name : {"t5_spiece.model", "llama2_tokenizer.model", "spm_botchan_1000.model"})
    if (const std::string path = shared_data(std::string("tokenizers/") + name); !path.empty())
      models.push_back(path);
  for (const std::string& model : models) {
    const Tokenizer t(model);
    for (const std::int32_t id : encode(t, "a</s>b <s> </s> <pad> <0x0A> <|endoftext|>")) {
      EXPECT_NE(id, t.bos()) << model;
      EXPECT_NE(id, t.eos()) << model;
      EXPECT_TRUE(t.pad() < 0 || id != t.pad()) << model;
    }
  }
}

TEST_F(Tokens, DecodeIsAlwaysValidUtf8) {
  const Tokenizer t(small_tokenizer());
  const Ids euro = encode(t, "\xE2\x82\xAC");  // three bytes, since the character is in no piece
  ASSERT_EQ(euro.size(), 4u);
  EXPECT_EQ(t.decode(euro), "\xE2\x82\xAC");
  Ids all;
  for (std::int32_t id = 0; id < 340; ++id) all.push_back(id);
  const std::vector<Ids> lists = {{euro[1]}, {euro[1], euro[2]}, {euro[3], euro[1]}, all};
  for (const Ids& ids : lists) {
    const std::string text = t.decode(ids);
    for (std::size_t i = 0; i < text.size();
         ++i) {  // each continuation byte belongs to a lead byte before it
      const auto c = static_cast<unsigned char>(text[i]);
      if (c < 0x80) continue;
      const int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC2 ? 1 : -1;
      ASSERT_GE(more, 0) << "at " << i;
      for (int k = 0; k < more; ++k) ASSERT_EQ(static_cast<unsigned char>(text[++i]) & 0xC0, 0x80);
    }
  }
  EXPECT_EQ(t.decode({}), "");
  EXPECT_THROW(t.decode({340}), InputError);
  EXPECT_THROW(t.decode({-1}), InputError);
}

TEST_F(Tokens, WhatIsNoModelIsNamed) {
  expect_has(message_of<InputError>([&] { Tokenizer t(at("gone.model")); }), {"gone.model", "No such file"});
  expect_has(refused(""), {"t.model", "empty"});
  expect_has(refused("#version: 0.2\n\xC4\xA0 t\n"), {"t.model", "BPE merges"});
  expect_has(refused("IQ== 0\nIg== 1\n"), {"t.model", "tiktoken"});
  expect_has(refused("{\"model\": 1}"), {"t.model", "JSON"});
  expect_has(refused("some words\n"), {"t.model", "no SentencePiece model"});
  const std::string good = bytes_of_file(small_tokenizer());
  expect_has(refused(good.substr(0, good.size() / 2)), {"t.model"});
  expect_has(refused(good.substr(0, 100)), {"t.model"});
}

/// Models of other makers, and ours: cutting must not show.
class Cuts : public Tokens, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string model() const {
    return std::string(GetParam()) == "own" ? small_tokenizer()
                                            : shared_data(std::string("tokenizers/") + GetParam());
  }
};

TEST_P(Cuts, RandomTextsGiveTheSameIdsCutOrWhole) {
  if (model().empty()) GTEST_SKIP() << GetParam() << " is not there";
  const Tokenizer t(model());
  const std::vector<std::string> parts = {"a",        "the",          " ",        " ",    " ",        "\n",
                                          "\n\n",     "  ",           "\t",       "Ab",   ".",        ",",
                                          "1",        "\xE6\x97\xA5", "\xC3\xA9", "</s>", "\xC2\xA0", "\r\n",
                                          "\xCC\x81", "\xE3\x80\x80"};
  std::mt19937 random(5);
  int cuts = 0;
  for (int round = 0; round < 10000; ++round) {
    std::string text;
    for (auto n = random() % 12 + 2; n > 0; --n) text += parts[random() % parts.size()];
    const std::size_t place = t.last_cut(text);
    if (place == 0) continue;
    ++cuts;
    ASSERT_LT(place, text.size());
    Ids joined;
    t.encode_span(std::string_view(text).substr(0, place), false, joined);
    t.encode_span(std::string_view(text).substr(place), true, joined);
    ASSERT_EQ(joined, in_one(t, text)) << "cut at " << place << " of \"" << text << '"';
  }
  EXPECT_GT(cuts, 1000);
}

TEST_P(Cuts, SpacesAndNewlinesArePlacesToCut) {
  if (model().empty()) GTEST_SKIP() << GetParam() << " is not there";
  const Tokenizer t(model());
  EXPECT_EQ(t.last_cut("one two three"), 7u);
  EXPECT_EQ(t.last_cut("one two   three"), 7u);
  // Where newlines are unknown, a run of them is one unknown token.
  EXPECT_EQ(t.last_cut("one two\nthree"), model().find("spm_") == std::string::npos ? 7u : 3u);
  EXPECT_EQ(t.last_cut("onetwothree"), 0u);
  EXPECT_EQ(t.last_cut(" "), 0u);
  EXPECT_EQ(t.last_cut(""), 0u);
}

TEST_P(Cuts, ALongTextGivesTheSameIdsHoweverItIsCut) {
  if (model().empty()) GTEST_SKIP() << GetParam() << " is not there";
  const Tokenizer t(model());
  std::string text = story(3000);
  if (const std::string path = shared_data("text/wikitext2_valid.txt"); !path.empty())
    text = bytes_of_file(path).substr(0, 300'000);
  EXPECT_GT(t.split(text).size(), 10u);
  for (const std::size_t size : {100, 1000}) {
    Ids joined;
    std::string_view rest = text;
    while (rest.size() > size) {
      const std::size_t place = t.last_cut(rest.substr(0, size));
      ASSERT_GT(place, 0u);
      t.encode_span(rest.substr(0, place), rest.size() < text.size(), joined);
      rest.remove_prefix(place);
    }
    t.encode_span(rest, true, joined);
    EXPECT_EQ(joined, encode(t, text)) << size;
  }
}

TEST_P(Cuts, NoiseIsCutAtWholeCharacters) {
  if (model().empty()) GTEST_SKIP() << GetParam() << " is not there";
  const Tokenizer t(model());
  std::string noise;
  for (int i = 0; i < 60000; ++i) noise += "\xE2\x82\xAC";
  std::string joined;
  for (const std::string_view span : t.split(noise)) {
    EXPECT_LE(span.size(), 64u << 10);
    EXPECT_NE(static_cast<unsigned char>(span[0]) & 0xC0, 0x80);
    joined += span;
  }
  EXPECT_EQ(joined, noise);
}

INSTANTIATE_TEST_SUITE_P(Models, Cuts,
                         ::testing::Values("own", "t5_spiece.model", "llama2_tokenizer.model",
                                           "spm_botchan_1000.model"),
                         [](const auto& model) {
                           const std::string name = model.param;
                           return name.substr(0, name.find_first_of("_."));
                         });

}  // namespace
}  // namespace compact
