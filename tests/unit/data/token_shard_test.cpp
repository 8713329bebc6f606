#include "compact/data/token_shard.h"

#include <sys/stat.h>

#include "data_testing.h"

namespace compact {
namespace {

namespace fs = std::filesystem;

class Shards : public FolderTest {
 protected:
  std::string put(const std::string& name, const std::string& bytes) {
    put_file(at(name), bytes);
    return at(name);
  }
  std::string refused(const std::string& bytes) {
    const std::string path = put("train.bin", bytes);
    return message_of<InputError>([&] { TokenShard shard(path); });
  }
};

TEST_F(Shards, ReadsBothWidthsAtAnyPlace) {
  for (const int width : {2, 4}) {
    const std::vector<std::uint32_t> ids = counting(20000, 50000);
    const TokenShard shard(put("a.bin", shard_bytes(ids, width)));
    EXPECT_EQ(shard.tokens(), 20000);
    EXPECT_EQ(shard.bytes_per_token(), width);
    for (const std::int64_t first : {0, 1, 4095, 19999}) {
      std::vector<std::int32_t> got(static_cast<std::size_t>(20000 - first));
      shard.read(first, 20000 - first, got.data(), 50000);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], static_cast<std::int32_t>(ids[static_cast<std::size_t>(first) + i]));
    }
  }
}

TEST_F(Shards, BeyondTheEndIsABug) {
  const TokenShard shard(put("a.bin", shard_bytes(counting(10))));
  std::int32_t to[16];
  EXPECT_THROW(shard.read(5, 6, to, 64), std::logic_error);
  EXPECT_THROW(shard.read(-1, 2, to, 64), std::logic_error);
}

TEST_F(Shards, AnIdOutsideTheVocabularyIsNamedWithItsPlace) {
  std::vector<std::uint32_t> ids = counting(9000);
  ids[5000] = 64;
  const TokenShard shard(put("train.bin", shard_bytes(ids)));
  std::vector<std::int32_t> to(9000);
  shard.read(0, 5000, to.data(), 64);
  shard.read(0, 9000, to.data(), 0);
  expect_has(message_of<InputError>([&] { shard.read(0, 9000, to.data(), 64); }),
             {"train.bin", "token 5000", "id 64", "64 ids"});
}

TEST_F(Shards, AnIdAbove31BitsIsRefusedWithoutAVocabularyToo) {
  const TokenShard shard(put("train.bin", shard_bytes({1, 0x80000000u, 3}, 4)));
  std::int32_t to[3];
  expect_has(message_of<InputError>([&] { shard.read(0, 3, to, 0); }), {"token 1", "2147483648"});
}

TEST_F(Shards, BrokenHeadersAreNamed) {
  const std::vector<std::uint32_t> ids = counting(4000);
  const std::string good = shard_bytes(ids);
  expect_has(refused(""), {"train.bin", "0 bytes"});
  expect_has(refused(good.substr(0, 500)), {"train.bin", "500 bytes"});
  expect_has(refused(good.substr(0, 1024)), {"train.bin", "4000 tokens", "1024"});
  expect_has(refused(good.substr(0, good.size() - 100)), {"train.bin", "9024", "8924"});
  expect_has(refused(good + "x"), {"train.bin", "9025"});
  expect_has(refused(shard_bytes(ids, 2, 20240326)), {"train.bin", "20240326", "magic"});
  expect_has(refused(shard_bytes(ids, 2, 0, 7)), {"train.bin", "version 1", "version 7"});
  expect_has(refused(shard_bytes(ids, 4, 0, 1)), {"train.bin", "version 7", "version 1"});
  expect_has(refused(shard_bytes({})), {"train.bin", "count", "0"});
  std::string negative = good;
  const std::int32_t count = -4000;
  std::memcpy(negative.data() + 8, &count, 4);
  expect_has(refused(negative), {"train.bin", "-4000"});
  std::string swapped = good;
  std::reverse(swapped.begin(), swapped.begin() + 4);
  expect_has(refused(swapped), {"train.bin", "big-endian"});
}

TEST_F(Shards, WhatIsNoFileIsNamed) {
  fs::create_directory(at("d.bin"));
  ASSERT_EQ(mkfifo(at("p.bin").c_str(), 0600), 0);
  expect_has(message_of<InputError>([&] { TokenShard s(at("d.bin")); }), {"d.bin", "directory"});
  expect_has(message_of<InputError>([&] { TokenShard s(at("p.bin")); }), {"p.bin", "pipe"});
}

}  // namespace
}  // namespace compact
