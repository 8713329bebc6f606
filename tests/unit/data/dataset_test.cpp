#include "data_testing.h"

namespace compact {
namespace {

namespace fs = std::filesystem;

/// A data set x_train_000000.bin, x_train_000001.bin, x_val_000000.bin of 100, 50 and 30 tokens, with its
/// manifest.
class Datasets : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    put_file(at("x_tokenizer.model"), "a tokenizer");
    manifest_.path = at("x.json");
    manifest_.vocab_size = 64;
    manifest_.tokenizer_file = "x_tokenizer.model";
    manifest_.tokenizer_xxh3 = xxh3_of_file(at("x_tokenizer.model"));
    manifest_.end_of_text = 2;
    add("x_train_000000.bin", 100);
    add("x_train_000001.bin", 50);
    add("x_val_000000.bin", 30);
    write_manifest(manifest_);
  }
  void add(const std::string& name, std::size_t tokens) {
    put_file(at(name), shard_bytes(counting(tokens)));
    manifest_.shards.push_back({name, static_cast<std::int64_t>(tokens), 1, xxh3_of_file(at(name))});
  }
  std::string refused(const std::string& glob = "x_train_*.bin", std::int64_t vocab_size = 64) {
    return message_of<InputError>([&] { open_dataset(at(glob), "data.train", vocab_size); });
  }
  void edit_manifest(const std::string& from, const std::string& to) {
    std::string text = read_text(at("x.json"));
    const std::size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from << " in " << text;
    put_file(at("x.json"), text.replace(place, from.size(), to));
  }
  DataManifest manifest_;
};

TEST_F(Datasets, ManifestGoesThereAndBack) {
  manifest_.rows = true;
  manifest_.row_length = 10;
  manifest_.padding_id = 3;
  write_manifest(manifest_);
  const DataManifest read = read_manifest(at("x.json"));
  EXPECT_EQ(read.vocab_size, 64);
  EXPECT_EQ(read.tokenizer_file, "x_tokenizer.model");
  EXPECT_EQ(read.tokenizer_xxh3, manifest_.tokenizer_xxh3);
  EXPECT_EQ(read.end_of_text, 2);
  EXPECT_TRUE(read.rows);
  EXPECT_EQ(read.row_length, 10);
  EXPECT_EQ(read.padding_id, 3);
  ASSERT_EQ(read.shards.size(), 3u);
  EXPECT_EQ(read.shards[1].file, "x_train_000001.bin");
  EXPECT_EQ(read.shards[1].tokens, 50);
  EXPECT_EQ(read.shards[1].xxh3, manifest_.shards[1].xxh3);
}

TEST_F(Datasets, OpensInOrderWithItsManifest) {
  const Dataset data = open_dataset(at("x_train_*.bin"), "data.train", 64);
  ASSERT_EQ(data.shards.size(), 2u);
  EXPECT_EQ(data.tokens(), 150);
  EXPECT_EQ(data.shards[0]->path(), at("x_train_000000.bin"));
  ASSERT_TRUE(data.manifest.has_value());
  EXPECT_EQ(data.tokenizer_path(), at("x_tokenizer.model"));
  fs::remove(at("x_tokenizer.model"));
  EXPECT_EQ(data.tokenizer_path(), "");
}

TEST_F(Datasets, AMovedFolderStillKnowsItsTokenizer) {
  const fs::path moved = at("elsewhere");
  fs::create_directory(moved);
  for (const char* name : {"x.json", "x_tokenizer.model", "x_train_000000.bin", "x_train_000001.bin"})
    fs::rename(at(name), moved / name);
  const Dataset data = open_dataset((moved / "x_train_*.bin").string(), "data.train", 64);
  EXPECT_EQ(data.tokenizer_path(), (moved / "x_tokenizer.model").string());
}

TEST_F(Datasets, NothingThatMatchesIsSaidWithKeyAndGlob) {
  expect_has(refused("none_here_*.bin"), {"data.train", "none_here_*.bin"});
}

TEST_F(Datasets, AChangedShardIsNamed) {
  std::string bytes = bytes_of_file(at("x_train_000001.bin"));
  bytes[1100] = static_cast<char>(bytes[1100] ^ 1);
  put_file(at("x_train_000001.bin"), bytes);
  expect_has(refused(), {"x_train_000001.bin", "changed", "x.json"});
}

TEST_F(Datasets, AShorterShardIsNamed) {
  put_file(at("x_train_000001.bin"), shard_bytes(counting(20)));
  expect_has(refused(), {"x_train_000001.bin", "50 tokens", "20"});
}

TEST_F(Datasets, AMissingShardIsNamedIfTheGlobAsksForIt) {
  fs::remove(at("x_train_000001.bin"));
  expect_has(refused(), {"x_train_000001.bin", "missing", "x.json"});
  EXPECT_EQ(open_dataset(at("x_train_000000.bin"), "data.train", 64).tokens(), 100);
}

TEST_F(Datasets, AShardThatIsNotListedIsNamed) {
  put_file(at("x_train_000002.bin"), shard_bytes(counting(20)));
  expect_has(refused(), {"x_train_000002.bin", "x.json"});
}

TEST_F(Datasets, VocabulariesMustAgree) {
  expect_has(refused("x_train_*.bin", 512), {"data.train", "64", "512"});
  EXPECT_EQ(open_dataset(at("x_train_*.bin"), "data.train", 0).tokens(), 150);
}

TEST_F(Datasets, BrokenManifestsAreNamed) {
  const std::string good = read_text(at("x.json"));
  for (const std::string& bad : std::vector<std::string>{"", "{", "[]", "null", "{}", good.substr(0, 100)}) {
    put_file(at("x.json"), bad);
    expect_has(refused(), {"x.json"});
  }
  const std::vector<std::pair<std::string, std::string>> edits = {
      {"\"version\": 1", "\"version\": 2"},
      {"\"vocab_size\": 64", "\"vocab_size\": -1"},
      {"\"vocab_size\": 64", "\"vocab_size\": 6.5"},
      {"\"vocab_size\": 64", "\"vocab_size\": 18446744073709551615"},
      {"\"packed\"", "\"column\""},
      {"\"packed\"", "\"rows\""},
      {"\"tokens\": 100", "\"tokens\": \"100\""},
      {"x_tokenizer.model", "../x_tokenizer.model"},
      {"\"end_of_text_id\": 2", "\"end_of_text_id\": 64"}};
  for (const auto& [from, to] : edits) {
    put_file(at("x.json"), good);
    edit_manifest(from, to);
    expect_has(refused(), {"x.json"});
  }
}

TEST_F(Datasets, WithoutAManifestAllIdsAreLookedAt) {
  fs::remove(at("x.json"));
  std::vector<std::uint32_t> ids = counting(200000);
  EXPECT_EQ(open_dataset(at("x_train_*.bin"), "data.train", 64).tokens(), 150);
  ids.back() = 64;
  put_file(at("x_train_000001.bin"), shard_bytes(ids));
  expect_has(refused(), {"x_train_000001.bin", "token 199999", "id 64"});
}

TEST_F(Datasets, APrefixMayHoldTheWordOfASplit) {
  manifest_.path = at("my_train_set.json");
  manifest_.shards.clear();
  add("my_train_set_val_000000.bin", 40);
  write_manifest(manifest_);
  EXPECT_TRUE(open_dataset(at("my_train_set_val_*.bin"), "data.val", 64).manifest.has_value());
}

TEST_F(Datasets, TwoPrefixesInOneGlobMustBeOfOneKind) {
  manifest_.path = at("y.json");
  manifest_.shards.clear();
  add("y_train_000000.bin", 70);
  write_manifest(manifest_);
  const Dataset both = open_dataset(at("?_train_*.bin"), "data.train", 64);
  EXPECT_EQ(both.tokens(), 220);
  EXPECT_EQ(both.manifest->shards.size(), 4u);
  manifest_.tokenizer_xxh3 = "0123456789abcdef";
  write_manifest(manifest_);
  expect_has(refused("?_train_*.bin"), {"x.json", "y.json", "tokenizers"});
  fs::remove(at("y.json"));
  expect_has(refused("?_train_*.bin"), {"y_train_000000.bin", "no manifest"});
}

}  // namespace
}  // namespace compact
