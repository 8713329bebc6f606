#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "compact/core/error.h"
#include "compact/io/safetensors.h"

namespace compact {

/// A folder of its own for each test, removed afterwards.
class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "compact_io_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

inline std::string bytes_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void put_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A safetensors file as bytes, whatever its header says.
inline std::string safetensors_bytes(const std::string& header, std::size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + std::string(data_bytes, '\1');
}

/// The message of the `Error` that `call` throws.
template <typename Error, typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing of this kind was thrown";
  return "";
}

inline void expect_has(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
}

/// Memory of a tensor together with its view.
template <typename T>
struct Owned {
  std::vector<T> values;
  Tensor tensor;
  Owned(Shape shape, DType dtype, T first = T{})
      : values(static_cast<std::size_t>(shape.elements())), tensor(values.data(), shape, dtype) {
    for (T& v : values) v = first++;
  }
  Owned(const Owned&) = delete;
};

}  // namespace compact
