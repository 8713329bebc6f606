#include "compact/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compact/core/bf16.h"
#include "io_testing.h"

namespace compact {
namespace {

class Safetensors : public FolderTest {};

TEST_F(Safetensors, RoundTrip) {
  Owned<float> a({3, 5}, DType::F32, 0.25f), scalar_like({1}, DType::F32, -7.0f), empty({0, 4}, DType::F32);
  Owned<std::uint16_t> b({7}, DType::BF16, 0x3f80);
  const std::string path = at("x.safetensors");
  write_safetensors(
      path,
      {{"z \"last\" é", a.tensor}, {"b", b.tensor}, {"one", scalar_like.tensor}, {"none", empty.tensor}},
      {{"format", "pt"}, {"note", "a\nb"}});

  const SafetensorsReader file(path);
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.metadata().at("note"), "a\nb");
  EXPECT_EQ(file.tensors().at("b").dtype, "BF16");
  Owned<float> a2({3, 5}, DType::F32), b_wide({7}, DType::F32), one({1}, DType::F32),
      none({0, 4}, DType::F32);
  Owned<std::uint16_t> b2({7}, DType::BF16);
  file.read("z \"last\" é", a2.tensor);
  file.read("b", b2.tensor);
  file.read("b", b_wide.tensor);
  file.read("one", one.tensor);
  file.read("none", none.tensor);
  EXPECT_EQ(a2.values, a.values);
  EXPECT_EQ(b2.values, b.values);
  EXPECT_EQ(one.values[0], -7.0f);
  EXPECT_EQ(b_wide.values[0], 1.0f);
  EXPECT_EQ(b_wide.values[1], 1.0078125f);
}

TEST_F(Safetensors, HeaderIsPaddedAndInGivenOrder) {
  Owned<float> a({3}, DType::F32);
  for (std::size_t n = 1; n <= 8; ++n) {
    const std::string path = at("x.safetensors");
    write_safetensors(path, {{std::string(n, 'z'), a.tensor}, {"a", a.tensor}}, {});
    const std::string bytes = bytes_of_file(path);
    const auto length = static_cast<std::size_t>(static_cast<unsigned char>(bytes[0]));
    EXPECT_EQ(length % 8, 0u);
    EXPECT_EQ(bytes.size(), 8 + length + 24);
    EXPECT_LT(bytes.find("z\":"), bytes.find("\"a\":"));
    SafetensorsReader again(path);
  }
}

TEST_F(Safetensors, LargeTensorInPieces) {
  // More than one piece of reading (4 MiB), also after widening.
  const std::int64_t n = (3 << 20) + 5;
  Owned<float> a({n}, DType::F32, 0.0f);
  Owned<std::uint16_t> b({n}, DType::BF16, 1);
  // No period, so that a piece read from the wrong place is seen; finite, so that values can be compared.
  for (std::size_t i = 0; i < b.values.size(); ++i)
    b.values[i] = static_cast<std::uint16_t>((i * 2654435761u >> 20) & 0x7f7fu);
  write_safetensors(at("x"), {{"a", a.tensor}, {"b", b.tensor}}, {});
  Owned<float> a2({n}, DType::F32), b2({n}, DType::F32);
  const SafetensorsReader file(at("x"));
  file.read("a", a2.tensor);
  file.read("b", b2.tensor);
  EXPECT_TRUE(a2.values == a.values);
  bool same = true;
  for (std::size_t i = 0; i < b.values.size(); ++i)
    same = same && std::bit_cast<std::uint32_t>(b2.values[i]) == static_cast<std::uint32_t>(b.values[i])
                                                                     << 16;
  EXPECT_TRUE(same);
}

TEST_F(Safetensors, HalfPrecisionIsWidenedExactly) {
  std::string data;
  for (std::uint32_t h = 0; h < 65536; ++h) {
    data += static_cast<char>(h & 255);
    data += static_cast<char>(h >> 8);
  }
  const std::string header = R"({"h":{"dtype":"F16","shape":[65536],"data_offsets":[0,131072]}})";
  put_file(at("x"), safetensors_bytes(header, 0) + data);
  Owned<float> h({65536}, DType::F32);
  SafetensorsReader(at("x")).read("h", h.tensor);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const std::uint32_t exponent = i >> 10 & 31, fraction = i & 1023;
    const double sign = i & 0x8000 ? -1.0 : 1.0;
    const double inf = std::numeric_limits<double>::infinity();
    const double expected = exponent == 31 ? (fraction ? std::nan("") : sign * inf)
                            : exponent == 0
                                ? sign * std::ldexp(fraction, -24)
                                : sign * std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    const double found = h.values[i];
    ASSERT_TRUE(std::isnan(expected) ? std::isnan(found)
                                     : found == expected && std::signbit(found) == (sign < 0))
        << i;
  }
}

TEST_F(Safetensors, ReadNamesWhatDoesNotFit) {
  Owned<float> a({2, 3}, DType::F32), flat({6}, DType::F32);
  write_safetensors(at("x"), {{"w", a.tensor}}, {});
  const SafetensorsReader file(at("x"));
  expect_has(message_of<InputError>([&] { file.read("w", flat.tensor); }),
             {at("x"), "tensor w", "[6]", "[2, 3]"});
  expect_has(message_of<InputError>([&] { file.read("v", flat.tensor); }), {at("x"), "no tensor v"});
  put_file(at("i"), safetensors_bytes(R"({"w":{"dtype":"I32","shape":[2,3],"data_offsets":[0,24]}})", 24));
  expect_has(message_of<InputError>([&] { SafetensorsReader(at("i")).read("w", a.tensor); }),
             {at("i"), "w", "I32"});
}

// What is stored in another precision is rounded to nearest, ties to even; -0 and NaN stay what they are.
TEST_F(Safetensors, ReadsIntoBf16) {
  Owned<float> a({6}, DType::F32);
  const float from[] = {1.0f, 1.00390625f, 1.01171875f, -0.0f, -3.0f, NAN};
  std::copy(std::begin(from), std::end(from), a.tensor.f32());
  write_safetensors(at("x"), {{"w", a.tensor}}, {});
  Owned<std::uint16_t> b({6}, DType::BF16), half({2}, DType::BF16);
  SafetensorsReader(at("x")).read("w", b.tensor);
  const auto* bits = b.tensor.as<const std::uint16_t>();
  for (int i = 0; i < 5; ++i) {
    const std::uint16_t want[] = {0x3f80, 0x3f80, 0x3f82, 0x8000, 0xc040};
    EXPECT_EQ(bits[i], want[i]) << i;
  }
  EXPECT_TRUE(std::isnan(to_float(Bf16{bits[5]})));
  const std::string header = R"({"h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})";
  put_file(at("h"), safetensors_bytes(header, 0) + std::string("\x00\x3c\x00\xc0", 4));  // 1 and -2
  SafetensorsReader(at("h")).read("h", half.tensor);
  EXPECT_EQ(half.tensor.as<const std::uint16_t>()[0], 0x3f80);
  EXPECT_EQ(half.tensor.as<const std::uint16_t>()[1], 0xc000);
}

struct Fault {
  const char* name;
  const char* header;
  std::size_t data_bytes;
  std::vector<std::string> words;
};

std::ostream& operator<<(std::ostream& out, const Fault& f) { return out << f.name; }

class SafetensorsFault : public FolderTest, public ::testing::WithParamInterface<Fault> {};

TEST_P(SafetensorsFault, IsNamed) {
  put_file(at("x.safetensors"), safetensors_bytes(GetParam().header, GetParam().data_bytes));
  const std::string message = message_of<InputError>([&] { SafetensorsReader file(at("x.safetensors")); });
  expect_has(message, GetParam().words);
  expect_has(message, {at("x.safetensors")});
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(message.find("json.exception"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    All, SafetensorsFault,
    ::testing::Values(
        Fault{"not_json", "<html></html>", 0, {"JSON", "byte 8"}},
        Fault{"array", R"([{"a":1}])", 0, {"an array"}}, Fault{"just_null", "null", 0, {"null"}},
        Fault{"nothing_after_brace", "{", 0, {"JSON"}}, Fault{"two_values", "{} {}", 0, {"JSON"}},
        Fault{
            "twice",
            R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
            2,
            {"w", "twice"}},
        Fault{"metadata_twice", R"({"__metadata__":{"a":"1","a":"2"}})", 0, {"a", "twice"}},
        Fault{"two_metadata", R"({"__metadata__":{},"__metadata__":{}})", 0, {"__metadata__", "twice"}},
        Fault{"metadata_number", R"({"__metadata__":{"a":1}})", 0, {"metadata a", "1"}},
        Fault{"metadata_text", R"({"__metadata__":"a"})", 0, {"__metadata__"}},
        Fault{"tensor_is_number", R"({"w":5})", 0, {"w", "5"}},
        Fault{"tensor_is_list", R"({"w":[5]})", 0, {"w", "an array"}},
        Fault{"key_twice",
              R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
              1,
              {"tensor w", "dtype twice"}},
        Fault{"unknown_key",
              R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}})",
              1,
              {"tensor w", "strides"}},
        Fault{"no_dtype", R"({"w":{"shape":[1],"data_offsets":[0,1]}})", 1, {"tensor w", "no dtype"}},
        Fault{"no_shape", R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", 1, {"tensor w", "no shape"}},
        Fault{"no_offsets", R"({"w":{"dtype":"U8","shape":[1]}})", 1, {"tensor w", "no data_offsets"}},
        Fault{"unknown_dtype",
              R"({"w":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})",
              4,
              {"tensor w", "F31"}},
        Fault{"dtype_number",
              R"({"w":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})",
              4,
              {"tensor w", "dtype", "7"}},
        Fault{"shape_text",
              R"({"w":{"dtype":"U8","shape":"1","data_offsets":[0,1]}})",
              1,
              {"tensor w", "shape"}},
        Fault{"shape_negative",
              R"({"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})",
              1,
              {"tensor w", "shape", "-1"}},
        Fault{"shape_fraction",
              R"({"w":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})",
              1,
              {"tensor w", "1.5"}},
        Fault{"shape_above_int64",
              R"({"w":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})",
              1,
              {"tensor w", "9223372036854775808"}},
        Fault{"shape_nested",
              R"({"w":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})",
              1,
              {"tensor w", "an array"}},
        Fault{"shape_of_17",
              R"({"w":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
              1,
              {"tensor w", "16"}},
        Fault{"shape_overflow",
              R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
              0,
              {"tensor w", "4294967296"}},
        Fault{"one_offset",
              R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[1]}})",
              1,
              {"tensor w", "data_offsets"}},
        Fault{"reversed",
              R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})",
              1,
              {"tensor w", "after its end"}},
        Fault{"beyond",
              R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
              3,
              {"tensor w", "4", "only 3"}},
        Fault{"wrong_size",
              R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
              4,
              {"tensor w", "8", "4"}},
        Fault{
            "overlap",
            R"({"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"w":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            3,
            {"v", "w", "overlap"}},
        Fault{
            "gap",
            R"({"v":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
            3,
            {"1 bytes before tensor w"}},
        Fault{"trailing", R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 5, {"4 bytes after"}},
        Fault{"empty_name", R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, {"empty name"}},
        Fault{"control_in_name",
              R"({"a\u001b[2J":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
              1,
              {"control character", "\\x1b"}},
        Fault{"invalid_utf8", "{\"\xff\":{}}", 0, {"JSON"}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(Safetensors, LengthOfTheHeaderIsCheckedBeforeMemoryIsTaken) {
  const auto with_length = [&](std::uint64_t length, std::size_t rest) {
    std::string bytes(reinterpret_cast<const char*>(&length), 8);
    put_file(at("x"), bytes + std::string(rest, ' '));
    return message_of<InputError>([&] { SafetensorsReader file(at("x")); });
  };
  expect_has(with_length(0, 100), {at("x"), "0 bytes"});
  expect_has(with_length(101, 100), {at("x"), "101", "100"});
  expect_has(with_length(110'000'000, 100), {at("x"), "110000000"});
  expect_has(with_length(UINT64_MAX, 100), {at("x"), "18446744073709551615"});
  put_file(at("x"), "");
  expect_has(message_of<InputError>([&] { SafetensorsReader file(at("x")); }), {at("x"), "0 bytes"});
  expect_has(message_of<InputError>([&] { SafetensorsReader file(at("missing")); }), {at("missing")});
}

TEST_F(Safetensors, DeepNestingIsRefused) {
  put_file(at("x"), safetensors_bytes(std::string(1 << 20, '['), 0));
  expect_has(message_of<InputError>([&] { SafetensorsReader file(at("x")); }), {at("x"), "an array"});
}

TEST_F(Safetensors, ZeroAnywhereMakesAnEmptyTensor) {
  put_file(
      at("x"),
      safetensors_bytes(
          R"({"w":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
          4));
  EXPECT_EQ(SafetensorsReader(at("x")).tensors().size(), 2u);
}

TEST_F(Safetensors, FailedWriteNamesFileAndReason) {
  Owned<float> a({1 << 16}, DType::F32);
  expect_has(message_of<RunError>([&] {
               write_safetensors(at("no/such.safetensors"), {{"a", a.tensor}}, {});
             }),
             {at("no/such.safetensors"), "No such file"});
  if (std::filesystem::exists("/dev/full"))
    expect_has(message_of<RunError>([&] {
                 write_safetensors("/dev/full", {{"a", a.tensor}}, {});
               }),
               {"/dev/full", "No space left"});
}

TEST_F(Safetensors, WritingTheSameNameTwiceIsABug) {
  Owned<float> a({4}, DType::F32);
  EXPECT_THROW(write_safetensors(at("x"), {{"a", a.tensor}, {"a", a.tensor}}, {}), std::logic_error);
  Owned<float> m({4, 4}, DType::F32);
  EXPECT_THROW(write_safetensors(at("x"), {{"a", m.tensor.columns(0, 2)}}, {}), std::logic_error);
}

}  // namespace
}  // namespace compact
