#include "src/data/document_reader.h"

#include "data_testing.h"

namespace compact {
namespace {

namespace fs = std::filesystem;

class Documents : public FolderTest {
 protected:
  std::vector<std::string> read(const std::string& name) {
    DocumentReader reader(at(name), nullptr);
    DocumentReader::Piece piece;
    std::vector<std::string> documents;
    pieces_ = 0;
    bool open = false;
    while (reader.next(piece)) {
      ++pieces_;
      EXPECT_EQ(piece.begins, !open);
      EXPECT_LE(piece.text.size(), 1u << 20);
      if (piece.begins) documents.emplace_back();
      documents.back() += piece.text;
      open = !piece.ends;
    }
    EXPECT_FALSE(open);
    return documents;
  }
  std::vector<std::string> documents_of(const std::string& text, const std::string& name = "in.txt") {
    put_file(at(name), text);
    return read(name);
  }
  std::string refused(const std::string& text, const std::string& name = "in.txt") {
    put_file(at(name), text);
    return message_of<InputError>([&] { read(name); });
  }
  int pieces_ = 0;
};

using List = std::vector<std::string>;

TEST_F(Documents, TextIsSplitAtSeparatorLines) {
  EXPECT_EQ(documents_of("a\nb\n<|endoftext|>\nc\n"), (List{"a\nb\n", "c\n"}));
  EXPECT_EQ(documents_of("a\n<|endoftext|>"), (List{"a\n"}));
  EXPECT_EQ(documents_of("a"), (List{"a"}));
  EXPECT_EQ(documents_of("a <|endoftext|> b\n<|endoftext|> \nc"),
            (List{"a <|endoftext|> b\n<|endoftext|> \nc"}));
}

TEST_F(Documents, NoEmptyDocuments) {
  EXPECT_EQ(documents_of(""), List{});
  EXPECT_EQ(documents_of("\n \n\t\n"), List{});
  EXPECT_EQ(documents_of("<|endoftext|>\n<|endoftext|>\n \n<|endoftext|>\n\n a\n<|endoftext|>\n"),
            (List{"\n a\n"}));
}

TEST_F(Documents, CarriageReturnsBeforeNewlinesGo) {
  EXPECT_EQ(documents_of("a\r\nb\r\n<|endoftext|>\r\nc\r\n"), (List{"a\nb\n", "c\n"}));
  EXPECT_EQ(documents_of("a\rb\n"), (List{"a\rb\n"}));
  const std::string text = "{\"text\": \"a\\r\\nb\\n\"}\r\n";
  EXPECT_EQ(documents_of(text, "in.jsonl"), (List{"a\nb\n"}));
}

TEST_F(Documents, ALineEndAtABlockBorderIsSeen) {
  for (std::size_t length = (64 << 10) - 3; length < (64 << 10) + 3; ++length) {
    const std::string line(length, 'x');
    EXPECT_EQ(documents_of(line + "\r\n<|endoftext|>\r\nb\r\n"), (List{line + "\n", "b\n"})) << length;
    EXPECT_EQ(documents_of(line + "\xE2\x82\xAC\r\n"), (List{line + "\xE2\x82\xAC\n"})) << length;
  }
}

TEST_F(Documents, AByteOrderMarkGoes) {
  EXPECT_EQ(documents_of("\xEF\xBB\xBF"), List{});
  EXPECT_EQ(documents_of("\xEF\xBB\xBF<|endoftext|>\na\n"), (List{"a\n"}));
  EXPECT_EQ(documents_of("\xEF\xBB\xBF{\"text\": \"a\"}\n", "in.jsonl"), (List{"a"}));
}

TEST_F(Documents, OtherEncodingsAreRefusedWithThePlace) {
  expect_has(refused(std::string("\xFF\xFE"
                                 "a\0b\0",
                                 6)),
             {"in.txt", "UTF-16"});
  expect_has(refused(std::string("\xFE\xFF\0a\0b", 6)), {"in.txt", "UTF-16"});
  expect_has(refused(std::string("a\0b\0c\0\n\0", 8)), {"in.txt", "UTF-16"});
  expect_has(refused("ab\xE4 cd\n"), {"in.txt", "UTF-8", "offset 2"});
  expect_has(refused("abc\xE2\x82"), {"in.txt", "UTF-8", "offset 3"});
  expect_has(refused(std::string(200000, 'x') + "\xC0\x80"), {"in.txt", "offset 200000"});
  expect_has(refused(std::string(65535, 'x') + "\xED\xA0\x80"), {"in.txt", "offset 65535"});
  expect_has(refused("{\"text\": \"\xFF\"}", "in.jsonl"), {"in.jsonl", "UTF-8", "offset 10"});
}

TEST_F(Documents, NothingIsLostAfterAZeroByte) {
  const std::string text = std::string("one") + '\0' + "two, and some more text after it\n";
  EXPECT_EQ(documents_of(text), (List{text}));
}

TEST_F(Documents, GzipIsKnownByItsContent) {
  const std::string text = story(3000);
  EXPECT_EQ(documents_of(gzip(text), "a.txt.gz"), (List{text}));
  EXPECT_EQ(documents_of(gzip(text), "a.txt"), (List{text}));
  EXPECT_EQ(documents_of(text, "a.gz"), (List{text}));
  EXPECT_EQ(documents_of(gzip(text) + gzip("") + gzip("end\n") + std::string(512, '\0'), "a.txt.gz"),
            (List{text + "end\n"}));
  EXPECT_EQ(documents_of(gzip("{\"text\": \"a\"}\n"), "a.jsonl.gz"), (List{"a"}));
}

TEST_F(Documents, DamagedGzipIsNamed) {
  const std::string good = gzip(story(3000));
  for (const std::size_t cut : {std::size_t{2}, std::size_t{9}, good.size() / 2, good.size() - 1})
    expect_has(refused(good.substr(0, cut), "in.txt.gz"), {"in.txt.gz", "cut off"});
  expect_has(refused(good + "trailing", "in.txt.gz"), {"in.txt.gz", "after its gzip data"});
  std::string flipped = good;
  flipped[flipped.size() - 6] = static_cast<char>(flipped[flipped.size() - 6] ^ 1);  // in its checksum
  expect_has(refused(flipped, "in.txt.gz"), {"in.txt.gz", "broken"});
}

TEST_F(Documents, JsonLinesAreDocuments) {
  EXPECT_EQ(
      documents_of("{\"id\": 1, \"text\": \"a\\u00e9\\n\"}\n\n{\"text\": \"b <|endoftext|>\"}", "x.jsonl"),
      (List{"a\xC3\xA9\n", "b <|endoftext|>"}));
  EXPECT_EQ(documents_of("{\"text\": \"\"}\n{\"text\": \" \\n\"}\n{\"text\": \"x\"}\n", "x.jsonl"),
            (List{"x"}));
}

TEST_F(Documents, TheLastLineMayBeLongAndWithoutNewline) {
  for (const std::size_t length : {64 << 10, (64 << 10) + 1, 128 << 10, 200'000}) {
    std::string json = "{\"text\": \"" + std::string(length - 12, 'x') + "\"}";
    ASSERT_EQ(json.size(), length);
    EXPECT_EQ(documents_of(json, "x.jsonl"), (List{std::string(length - 12, 'x')}));
  }
}

TEST_F(Documents, BrokenJsonLinesAreNamedWithFileAndLine) {
  const std::string good = "{\"text\": \"a\"}\n";
  expect_has(refused(good + good + "{\"text\": \"a\n", "bad.jsonl"), {"bad.jsonl", "line 3"});
  expect_has(refused(good + "\"text\"\n", "bad.jsonl"), {"bad.jsonl", "line 2", "string"});
  expect_has(refused(good + "[1]\n", "bad.jsonl"), {"bad.jsonl", "line 2", "array"});
  expect_has(refused(good + "{\"t\": 1}\n", "bad.jsonl"), {"bad.jsonl", "line 2", "\"text\""});
  expect_has(refused(good + "{\"text\": 1}\n", "bad.jsonl"), {"bad.jsonl", "line 2", "number"});
  expect_has(refused(good + "{\"text\": \"\\ud800\"}\n", "bad.jsonl"), {"bad.jsonl", "line 2"});
  expect_has(refused("{\n  \"text\": 1\n}\n", "bad.jsonl"), {"bad.jsonl", "line 1"});
  expect_has(refused(good + std::string(100000, '['), "bad.jsonl"), {"bad.jsonl", "line 2"});
}

TEST_F(Documents, LongDocumentsComeInPieces) {
  const std::string text = story(60000);  // 4 MB
  EXPECT_EQ(documents_of(text + "<|endoftext|>\nb\n"), (List{text, "b\n"}));
  EXPECT_GT(pieces_, 4);
  const std::string noise(3'000'000, 'x');
  EXPECT_EQ(documents_of(noise), (List{noise}));
  std::string euros;
  for (int i = 0; i < 700000; ++i) euros += "\xE2\x82\xAC";
  EXPECT_EQ(documents_of("{\"text\": \"" + euros + "\"}", "x.jsonl"), (List{euros}));
  EXPECT_EQ(pieces_, 3);
}

TEST_F(Documents, OfMuchWhiteSpaceBeforeAWordOnlyTheLastIsKept) {
  const List got = documents_of(std::string(3'000'000, '\n') + "a\n");
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].substr(got[0].size() - 3), "\na\n");
  EXPECT_LT(got[0].size(), (1u << 20) + 3);
}

TEST_F(Documents, WhatIsNoInputIsNamed) {
  expect_has(message_of<InputError>([&] { read("gone.txt"); }), {"gone.txt", "No such file"});
  fs::create_directory(at("folder"));
  expect_has(message_of<InputError>([&] { read("folder"); }), {"folder", "directory"});
}

TEST(Utf8, InvalidBytesBecomeReplacementCharacters) {
  EXPECT_EQ(valid_utf8("a\xC3\xA9"), "a\xC3\xA9");
  EXPECT_EQ(valid_utf8("a\xC3"), "a\xEF\xBF\xBD");
  EXPECT_EQ(valid_utf8("\xE2\x82z\xF5"), "\xEF\xBF\xBD\xEF\xBF\xBDz\xEF\xBF\xBD");
}

TEST(Utf8, EdgesOfTheRangesAreRight) {
  const auto valid = [](const std::string& s) {
    Utf8Checker whole, bytes;
    const bool a = whole.accept(s) && whole.complete();
    bool b = true;
    for (const char c : s) b = b && bytes.accept({&c, 1});  // the same byte by byte
    EXPECT_EQ(a, b && bytes.complete());
    return a;
  };
  for (const char* s :
       {"\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF",
        "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "12345678\xC2\x80", "1234567890123456"})
    EXPECT_TRUE(valid(s)) << s;
  for (const char* s :
       {"\x80", "\xC1\xBF", "\xC2", "\xC2\x7F", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "12345678\xC2", "\xFF"})
    EXPECT_FALSE(valid(s)) << s;
}

}  // namespace
}  // namespace compact
