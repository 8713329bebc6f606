#include "compact/io/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "compact/core/error.h"

namespace compact {
namespace {

using namespace std::string_view_literals;

std::string mistake_in(std::string_view text) {
  try {
    parse_json(text, "x.json");
  } catch (const InputError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("x.json")) << message;
    EXPECT_EQ(message.find("exception"), std::string::npos) << message;
    return message;
  }
  ADD_FAILURE() << "read without complaint: " << text;
  return "";
}

void expect_mistake(std::string_view text, std::string_view words) {
  const std::string message = mistake_in(text);
  EXPECT_NE(message.find(words), std::string::npos) << "no '" << words << "' in: " << message;
}

TEST(Json, ReadsEveryKindWithItsLine) {
  const JsonValue root = parse_json(
      "{\"a\": 1,\n \"b\": [true,\n 2.50,\n null],\n \"c\": {\"d\": \"x\\n\\u00e9\"}\n}", "x.json");
  ASSERT_EQ(root.kind, JsonValue::Kind::Object);
  EXPECT_EQ(root.names, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(root.find("a")->text, "1");
  EXPECT_EQ(root.find("a")->where(), "x.json line 1");
  const JsonValue& list = *root.find("b");
  ASSERT_EQ(list.items.size(), 3u);
  EXPECT_EQ(list.line, 2);
  EXPECT_TRUE(list.items[0].boolean);
  EXPECT_EQ(list.items[1].number, 2.5);
  EXPECT_EQ(list.items[1].text, "2.50");
  EXPECT_EQ(list.items[1].line, 3);
  EXPECT_EQ(list.items[2].kind, JsonValue::Kind::Null);
  EXPECT_EQ(list.items[2].line, 4);
  EXPECT_EQ(root.find("c")->find("d")->text, "x\n\xC3\xA9");
  EXPECT_EQ(root.find("c")->find("d")->line, 5);
  EXPECT_EQ(root.find("nothing"), nullptr);
}

TEST(Json, NumbersAtLineEndsBelongToTheirLine) {
  const JsonValue root = parse_json("[1\n,2\n,3\n]", "x.json");
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(root.items[i].line, static_cast<std::int64_t>(i + 1));
  EXPECT_EQ(parse_json("7", "x.json").line, 1);
}

TEST(Json, ByteOrderMarkAndWindowsLineEnds) {
  EXPECT_EQ(parse_json("\xEF\xBB\xBF{\"a\":\r\n 1}\r\n", "x.json").find("a")->number, 1);
}

TEST(Json, SaysWhatIsWrongAndWhere) {
  expect_mistake("", "x.json is empty");
  expect_mistake(" \n\t", "is empty");
  expect_mistake("a\0b"sv, "binary file");
  expect_mistake("\xFF\xFE{"sv, "UTF-16");
  expect_mistake("{\n \"a\": 1, }", "x.json line 2, column 10: trailing comma before '}'");
  expect_mistake("[1,2,]", "column 6: trailing comma before ']'");
  expect_mistake("[1,,2]", "column 4: found \",\", but expected a value");
  expect_mistake("[,1]", "column 2: found \",\"");
  expect_mistake("{,}", "column 2: found \",\", but expected a key in double quotes");
  expect_mistake("{'a': 1}", "line 1, column 2: single quotes");
  expect_mistake("{\n// text\n\"a\": 1}", "line 2, column 1: comments");
  expect_mistake("{\"a\": 1} # text", "comments");
  expect_mistake("{\"a\": NaN}", "column 7: NaN is no JSON number");
  expect_mistake("[-Infinity]", "-Infinity is no JSON number");
  expect_mistake("[True]", "True is written true");
  expect_mistake("[None]", "null");
  expect_mistake("{\"a\" 1}", "expected a colon");
  expect_mistake("{\"a\": 1 \"b\": 2}", "found \"b\", but expected a comma or '}'");
  expect_mistake("[1 2]", "found \"2\", but expected a comma or ']'");
  expect_mistake("{a: 1}", "found \"a\", but expected a key in double quotes");
  expect_mistake("{\"a\": 1]", "found \"]\"");
  expect_mistake("{\"a\": 1}}", "but expected the end of the file");
  expect_mistake("{\"a\": 1} x", "found \"x\"");
  expect_mistake("model: x\n", "line 1, column 1: found \"model\"");
  expect_mistake("{\"a\": [1,", "2 brackets still open");
  expect_mistake("{\"a", "within a text");
  expect_mistake("{\"a\": \"b\nc\"}", "not closed before the end of its line");
  expect_mistake("{\"a\": \"b\tc\"}", "control character");
  expect_mistake("{\"a\": \"\\x\"}", "backslash");
  expect_mistake("{\"a\": \"\\ud800\"}", "backslash");
  expect_mistake("{\"a\": \"\xC3\"}", "UTF-8");
  expect_mistake("{\"a\": \"\xC0\x80\"}", "UTF-8");
  expect_mistake("[1e400]", "column 2: the number 1e400 is too large");
  expect_mistake("[01]", "found \"1\"");
  expect_mistake("{\"a\": 1,\n \"b\": 2,\n \"a\": 3}",
                 "line 3: the key \"a\" is given a second time (first on line 1)");
}

TEST(Json, DepthIsBounded) {
  EXPECT_NO_THROW(parse_json(std::string(64, '[') + std::string(64, ']'), "x.json"));
  expect_mistake(std::string(65, '[') + std::string(65, ']'), "nested more than 64");
  expect_mistake(std::string(100000, '['), "nested more than 64");
}

TEST(Json, ALongTextIsReadInOnePass) {
  std::string text = "[0";
  for (int i = 1; i < 200000; ++i) text += ",\n" + std::to_string(i);
  EXPECT_EQ(parse_json(text + "]", "x.json").items.back().line, 200000);
  std::string object = "{\"k\":0";
  for (int i = 0; i < 100000; ++i) object += ",\"" + std::to_string(i) + "\":1";
  EXPECT_EQ(parse_json(object + "}", "x.json").items.size(), 100001u);
}

// What is read and what is refused is what JSON says, apart from the bounds above: a second reader agrees.
TEST(Json, AgreesWithAnotherReader) {
  const std::string pieces[] = {"{", "}",      "[",    "]",    ",", ":",  "\"a\"", "\"b\"",
                                "1", "-0.5e3", "true", "null", " ", "\n", "x",     "'"};
  std::uint32_t state = 1;
  int fine = 0;
  for (int i = 0; i < 100000; ++i) {
    std::string text;
    for (std::uint32_t n = 1 + i % 7; n > 0; --n) {
      state = state * 1664525 + 1013904223;
      text += pieces[(state >> 16) % std::size(pieces)];
    }
    bool read = true, key_twice = false;
    try {
      parse_json(text, "x.json");
    } catch (const InputError& error) {
      read = false;
      key_twice = std::string_view(error.what()).find("second time") != std::string_view::npos;
    }
    if (!key_twice) {
      EXPECT_EQ(read, nlohmann::json::accept(text)) << text;
    }
    fine += read;
  }
  EXPECT_GT(fine, 1000);
}

TEST(Json, Integers) {
  const auto integer = [](const char* text) { return json_integer(parse_json(text, "x.json"), "k", {}); };
  EXPECT_EQ(integer("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(integer("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(integer("1e6"), 1000000);
  EXPECT_EQ(integer("4.0"), 4);
  EXPECT_EQ(integer("-0"), 0);
  for (const char* wrong : {"4.5", "true", "\"4\"", "null", "1e19", "9223372036854775808", "[4]", "{}"}) {
    EXPECT_THROW(integer(wrong), InputError) << wrong;
  }
  EXPECT_EQ(json_unsigned(parse_json("18446744073709551615", "x.json"), "k"),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_THROW(json_unsigned(parse_json("-1", "x.json"), "k"), InputError);
  EXPECT_THROW(json_unsigned(parse_json("-1.0", "x.json"), "k"), InputError);
}

TEST(Json, BoundsInWords) {
  EXPECT_EQ(integer_within({.lowest = 1}), "an integer of at least 1");
  EXPECT_EQ(integer_within({.lowest = 0, .highest = 1024}), "an integer from 0 to 1024");
  EXPECT_EQ(number_within({.lowest = 0, .open_low = true}), "a number above 0");
  EXPECT_EQ(number_within({.lowest = 0, .highest = 1, .open_high = true}), "a number from 0 to below 1");
  EXPECT_EQ(number_within({.lowest = 1e-30}), "a number of at least 1e-30");
  EXPECT_EQ(number_within({}), "a number");
  EXPECT_FALSE((JsonBounds{.lowest = 0, .open_low = true}.hold(0)));
  EXPECT_FALSE((JsonBounds{.lowest = 0}.hold(std::nan(""))));
}

TEST(Json, ShownValuesAreShort) {
  const auto shown = [](const std::string& text) { return parse_json(text, "x.json").shown(); };
  EXPECT_EQ(shown("[1, \"a\", null, true]"), "[1, \"a\", null, true]");
  EXPECT_EQ(shown("{\"a\": 1}"), "an object in braces");
  EXPECT_LE(shown("\"" + std::string(10000, 'x') + "\"").size(), 60u);
  EXPECT_LE(shown("[1." + std::string(10000, '1') + ", 2]").size(), 60u);
  std::string umlauts = "\"";
  for (int i = 0; i < 100; ++i) umlauts += "\xC3\xBC";
  EXPECT_TRUE(
      nlohmann::json::accept("\"" + shown(umlauts + "\"").substr(1) + "\""));  // cut between characters
}

TEST(Json, WritesTextsAndNumbersThatReadBack) {
  const std::string text = "a\"b\\c\n\r\t\x01\x7F/\xC3\xBC";
  EXPECT_EQ(parse_json(json_quoted(text), "x.json").text, text);
  for (const double value : {0.0, 1.0, 0.1, 1e-6, 1e30, -2.5, 123456789.0, 5e-324, 1.7976931348623157e308}) {
    EXPECT_EQ(parse_json(json_number_text(value), "x.json").number, value);
  }
  EXPECT_EQ(json_number_text(1), "1.0");
  EXPECT_EQ(json_number_text(1e-6), "1e-06");
}

}  // namespace
}  // namespace compact
