#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "compact/core/error.h"
#include "compact/core/philox.h"
#include "compact/io/json.h"
#include "compact/model/config.h"
#include "compact/train/run_config.h"

namespace compact {
namespace {

/// A stream of 32-bit numbers, the same in every run.
class Numbers {
 public:
  std::size_t below(std::size_t n) {
    return philox({count_++, 0, 0, 1}, 20250102)[0] % static_cast<std::uint32_t>(n);
  }

 private:
  std::uint32_t count_ = 0;
};

/// Words that break readers: edges of numbers, odd kinds, broken texts.
const std::vector<std::string> kWords = {"0",
                                         "-1",
                                         "1e400",
                                         "-1e-400",
                                         "1e308",
                                         "9223372036854775807",
                                         "18446744073709551616",
                                         "4.5",
                                         "NaN",
                                         "true",
                                         "null",
                                         "\"\"",
                                         "\"1s\"",
                                         "\"1e6t\"",
                                         "\"100%\"",
                                         "\"1e999%\"",
                                         "\"\\u0000\"",
                                         "\"\\ud800\"",
                                         "\xFF",
                                         "{}",
                                         "[]",
                                         "[[",
                                         "{\"a\":",
                                         ",",
                                         "}",
                                         "\"",
                                         "\\",
                                         "\n",
                                         std::string(1, '\0'),
                                         "\"name\"",
                                         "\"bf16\"",
                                         "\"compact\""};

/// One to four edits: a byte changed, a piece removed, doubled or moved, a word put in or over a value.
std::string mutated(std::string text, Numbers& numbers) {
  for (std::size_t edits = 1 + numbers.below(4); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = numbers.below(text.size());
    const std::size_t length = 1 + numbers.below(20);
    switch (numbers.below(6)) {
      case 0:
        text[at] = static_cast<char>(numbers.below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(numbers.below(text.size()), length));
        break;
      case 3:
        text.insert(at, kWords[numbers.below(kWords.size())]);
        break;
      case 4:
        text.resize(at);
        break;
      default: {  // over the value behind the next colon
        const std::size_t colon = text.find(':', at);
        if (colon == std::string::npos) break;
        const std::size_t end = text.find_first_of(",}\n", colon);
        text.replace(colon + 1, end == std::string::npos ? end : end - colon - 1,
                     kWords[numbers.below(kWords.size())]);
      }
    }
  }
  return text;
}

/// Nothing but InputError, in one line that starts with the file's name.
template <typename Work>
bool read_or_input_error(const std::string& text, Work work) {
  try {
    work();
    return true;
  } catch (const InputError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("fuzz.json"), std::string::npos) << message;
    EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 1000u) << message;
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what() << " for: " << text;
  }
  return false;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(ConfigFuzz, RunFiles) {
  const std::string good = text_of(COMPACT_SOURCE_DIR "/configs/run/c4_60m_compact_n4.json");
  Numbers numbers;
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string text = mutated(good, numbers);
    read += read_or_input_error(text, [&] {
      const RunConfig config = parse_run_config(text, "fuzz.json");
      const std::string resolved = resolved_json(config);
      ASSERT_EQ(resolved_json(parse_run_config(resolved, "resolved.json")), resolved) << text;
    });
  }
  EXPECT_GT(read, 100);  // else the mutations never reach the values
}

TEST(ConfigFuzz, Overrides) {
  const std::string path = (std::filesystem::temp_directory_path() / "compact_fuzz.json").string();
  std::ofstream(path) << text_of(COMPACT_SOURCE_DIR "/configs/run/c4_60m_compact_n4.json");
  Numbers numbers;
  for (int i = 0; i < 5000; ++i) {
    const std::string text = mutated("optimizer.betas=[0.8,0.95]", numbers);
    try {
      load_run_config(path, {text});
    } catch (const InputError& error) {
      ASSERT_NE(std::string(error.what()), "");
    }
  }
  std::filesystem::remove(path);
}

TEST(ConfigFuzz, ModelFiles) {
  const std::string good = text_of(COMPACT_SOURCE_DIR "/configs/model/llama_60m.json");
  Numbers numbers;
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string text = mutated(good, numbers);
    read += read_or_input_error(text, [&] {
      const ModelConfig model = parse_model_config(text, "fuzz.json");
      ASSERT_GT(model.parameters(), 0) << text;
    });
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace compact
