#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "compact/core/error.h"

namespace compact {

/// The message of the InputError that `work` throws; a failure of the test when it throws none.
inline std::string input_error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const InputError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no InputError was thrown";
  return "";
}

inline void expect_words(const std::string& message, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << "no '" << word << "' in: " << message;
  }
  EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

/// A file in a folder of its own that goes away with it.
class FileForTest {
 public:
  FileForTest(const std::string& name, std::string_view text) {
    folder_ = std::filesystem::temp_directory_path() / ("compact_config_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / name).string();
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~FileForTest() { std::filesystem::remove_all(folder_); }
  FileForTest(const FileForTest&) = delete;
  FileForTest& operator=(const FileForTest&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::filesystem::path folder_;
  std::string path_;
};

/// A small run file; each line stands alone so that tests can replace one.
inline const std::string kSmallRun = R"({
  "model": "model.json",
  "data": {"train": "train.bin", "val": "val.bin", "sequence_length": 16},
  "batch": {"tokens_per_step": 128, "micro_batch": 4},
  "optimizer": {"name": "compact", "lr": 0.01},
  "train": {"steps": 40, "eval_every": 2, "checkpoint_every": 2, "out_dir": "out"},
  "seed": 42
}
)";

/// The text with the first `from` replaced.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

}  // namespace compact
