#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "compact/core/error.h"
#include "compact/core/philox.h"
#include "compact/io/safetensors.h"

namespace compact {
namespace {

/// A stream of 32-bit numbers, the same in every run.
class Numbers {
 public:
  std::uint32_t below(std::size_t n) {
    return philox({count_++, 0, 0, 0}, 20250101)[0] % static_cast<std::uint32_t>(n);
  }

 private:
  std::uint32_t count_ = 0;
};

/// Either the file opens, and then every tensor it promises can be read, or InputError says what is wrong.
/// Returns whether it opened.
bool open_and_read(const std::string& path) {
  try {
    const SafetensorsReader file(path);
    for (const auto& [name, stored] : file.tensors()) {
      if (stored.shape.size() != 2) continue;
      std::array<float, 64> memory{};
      const Shape shape{stored.shape[0], stored.shape[1]};
      if (shape.elements() <= 64) {
        try {
          file.read(name, Tensor(memory.data(), shape, DType::F32));
        } catch (const InputError&) {
        }
      }
    }
    return true;
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
    EXPECT_EQ(std::string(e.what()).find("[json"), std::string::npos) << e.what();
    return false;
  }
}

TEST(SafetensorsFuzz, MutatedFilesNeverCrash) {
  // A file in memory: thousands of small files would wait for the disk.
  const int file = memfd_create("compact_fuzz", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  std::array<float, 12> values{};
  write_safetensors(
      path,
      {{"a", Tensor(values.data(), {3, 4}, DType::F32)}, {"b", Tensor(values.data(), {2, 1}, DType::BF16)}},
      {{"format", "pt"}});
  std::ifstream in(path, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  const std::size_t head = 8 + header;  // most mutations go where the structure is
  ASSERT_TRUE(open_and_read(path));

  const std::string pieces[] = {"[",
                                "]",
                                "{",
                                "}",
                                ",",
                                ":",
                                "\"",
                                "0",
                                "-1",
                                "1e999",
                                "18446744073709551616",
                                "null",
                                "\"dtype\"",
                                "\"shape\":[",
                                "\\u0000",
                                "\xff",
                                "9223372036854775807"};
  Numbers next;
  int opened = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (std::uint32_t k = 0, n = 1 + next.below(3); k < n && !bytes.empty(); ++k) {
      const std::size_t at = next.below(std::min(head, bytes.size()));
      switch (next.below(5)) {
        case 0:
          bytes[at] = static_cast<char>(next.below(256));
          break;
        case 1:
          bytes.erase(at, 1 + next.below(8));
          break;
        case 2:
          bytes.insert(at, pieces[next.below(std::size(pieces))]);
          break;
        case 3:
          bytes[at] = static_cast<char>('0' + next.below(10));
          break;
        case 4:
          bytes.resize(next.below(bytes.size()));
          break;
      }
      // A right length lets the mutation reach the checks behind that of the length.
      if (next.below(2) == 0 && bytes.size() > 48) {
        const std::uint64_t length = bytes.size() - 8 - (good.size() - head);
        std::memcpy(bytes.data(), &length, 8);
      }
    }
    ASSERT_EQ(ftruncate(file, 0), 0);
    ASSERT_EQ(pwrite(file, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    opened += open_and_read(path);
  }
  close(file);
  EXPECT_GT(opened, 0);      // some mutations are harmless (spaces, metadata, data)
  EXPECT_LT(opened, 10000);  // most are not
}

}  // namespace
}  // namespace compact
