#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "data_testing.h"

namespace compact {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

class Tokenize : public FolderTest {
 protected:
  TokenizeOptions options(const std::string& text, const std::string& input = "in.txt") {
    put_file(at(input), text);
    TokenizeOptions o;
    o.tokenizer = small_tokenizer();
    o.out_prefix = at("x");
    o.inputs = {at(input)};
    return o;
  }
  static std::string documents(int count, int sentences = 2) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += story(sentences, static_cast<unsigned>(i) + 1) + "<|endoftext|>\n";
    return text;
  }
  Ids ids_of(const std::string& text, bool end = true) {
    Ids ids;
    Tokenizer(small_tokenizer()).encode(text, ids);
    if (end) ids.push_back(2);
    return ids;
  }
  /// What the run writes into x_<split>, documents being `texts`.
  std::vector<Ids> split_documents(const std::string& split) {
    std::vector<Ids> out(1);
    for (const std::int32_t id : read_shards(at("x_" + split + "_*.bin"))) {
      out.back().push_back(id);
      if (id == 2) out.emplace_back();
    }
    EXPECT_TRUE(out.back().empty());
    out.pop_back();
    return out;
  }
  std::string refused(const TokenizeOptions& o) {
    return message_of<InputError>([&] { tokenize(o); });
  }
};

TEST_F(Tokenize, WritesDocumentsWithTheirEndAndAManifest) {
  const TokenizeResult r = tokenize(options("One day\n<|endoftext|>\na girl </s> found\n"));
  Ids expected = ids_of("One day\n");
  const Ids second = ids_of("a girl </s> found\n");
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(read_shards(at("x_train_*.bin")), expected);
  EXPECT_EQ(r.documents, 2);
  EXPECT_EQ(r.train_tokens, static_cast<std::int64_t>(expected.size()));
  EXPECT_EQ(r.val_tokens, 0);
  EXPECT_EQ(r.files,
            (std::vector<std::string>{at("x_train_000000.bin"), at("x_tokenizer.model"), at("x.json")}));
  const Dataset data = open_dataset(at("x_train_*.bin"), "data.train", 340);
  ASSERT_TRUE(data.manifest.has_value());
  EXPECT_EQ(data.manifest->end_of_text, 2);
  EXPECT_EQ(data.manifest->shards[0].documents, 2);
  EXPECT_EQ(data.shards[0]->bytes_per_token(), 2);
  EXPECT_EQ(bytes_of_file(data.tokenizer_path()), bytes_of_file(small_tokenizer()));
}

TEST_F(Tokenize, WholeDocumentsGoToValSpreadEvenly) {
  TokenizeOptions o = options(documents(40));
  o.val_fraction = 0.1;
  tokenize(o);
  const std::vector<Ids> val = split_documents("val");
  ASSERT_EQ(val.size(), 4u);
  EXPECT_EQ(split_documents("train").size(), 36u);
  for (unsigned k = 0; k < 4; ++k) EXPECT_EQ(val[k], ids_of(story(2, 10 * (k + 1))));
}

TEST_F(Tokenize, OfTooFewDocumentsTheEndIsVal) {
  for (const std::int64_t shard_tokens : {100'000, 100, 37}) {
    TokenizeOptions o = options(story(60));
    o.shard_tokens = shard_tokens;
    const TokenizeResult whole = tokenize(o);
    const Ids all = read_shards(at("x_train_*.bin"));
    o.val_fraction = 0.1;
    const TokenizeResult split = tokenize(o);
    EXPECT_EQ(split.val_tokens, whole.train_tokens / 10);
    EXPECT_EQ(split.train_tokens + split.val_tokens, whole.train_tokens);
    Ids joined = read_shards(at("x_train_*.bin"));
    const Ids val = read_shards(at("x_val_*.bin"));
    EXPECT_EQ(static_cast<std::int64_t>(val.size()), split.val_tokens);
    joined.insert(joined.end(), val.begin(), val.end());
    EXPECT_EQ(joined, all);
    const Dataset train = open_dataset(at("x_train_*.bin"), "data.train", 340);
    EXPECT_EQ(open_dataset(at("x_val_*.bin"), "data.val", 340).tokens(), split.val_tokens);
    std::int64_t documents = 0;
    for (const auto& entry : train.manifest->shards) documents += entry.documents;
    EXPECT_EQ(documents, 1);
    for (const auto& file : fs::directory_iterator(at("")))
      EXPECT_EQ(file.path().string().find(".tmp"), std::string::npos) << file.path();
  }
}

TEST_F(Tokenize, RowsAreCutAndPadded) {
  TokenizeOptions o = options("One day\n<|endoftext|>\n" + story(20) + "<|endoftext|>\n" + story(1));
  o.rows = 16;
  o.shard_tokens = 40;  // two rows
  tokenize(o);
  Ids first = ids_of("One day\n");
  ASSERT_LT(first.size(), 16u);
  first.resize(16, 3);
  Ids second = ids_of(story(20), false);
  second.resize(16);
  Ids rows = read_shards(at("x_train_*.bin"));
  ASSERT_EQ(rows.size(), 48u);
  EXPECT_EQ(Ids(rows.begin(), rows.begin() + 16), first);
  EXPECT_EQ(Ids(rows.begin() + 16, rows.begin() + 32), second);
  const Dataset data = open_dataset(at("x_train_*.bin"), "data.train", 340);
  EXPECT_EQ(data.shards.size(), 2u);
  EXPECT_EQ(data.shards[0]->tokens(), 32);
  EXPECT_TRUE(data.manifest->rows);
  EXPECT_EQ(data.manifest->row_length, 16);
  EXPECT_EQ(data.manifest->padding_id, 3);
  EXPECT_EQ(data.manifest->shards[0].documents, 2);
}

TEST_F(Tokenize, RowsAreSplitAsRows) {
  TokenizeOptions o = options(documents(3));
  o.rows = 16;
  o.val_fraction = 0.1;
  const TokenizeResult r = tokenize(o);
  EXPECT_EQ(r.train_tokens, 32);
  EXPECT_EQ(r.val_tokens, 16);
  o = options(story(3));
  o.rows = 16;
  o.val_fraction = 0.1;
  expect_has(refused(o), {"one document", "--rows", "--val-fraction"});
}

TEST_F(Tokenize, SmallShardsHoldTheSame) {
  TokenizeOptions o = options(documents(30));
  const TokenizeResult r = tokenize(o);
  const Ids all = read_shards(at("x_train_*.bin"));
  o.shard_tokens = 100;
  tokenize(o);
  EXPECT_EQ(read_shards(at("x_train_*.bin")), all);
  const auto shards = glob_files(at("x_train_*.bin"));
  EXPECT_EQ(static_cast<std::int64_t>(shards.size()), (r.train_tokens + 99) / 100);
}

TEST_F(Tokenize, OldShardsOfThePrefixGoAndOnlyThose) {
  TokenizeOptions o = options(documents(30));
  o.shard_tokens = 100;
  o.val_fraction = 0.1;
  tokenize(o);
  EXPECT_TRUE(fs::exists(at("x_val_000000.bin")));
  for (const char* other : {"x_more_train_000000.bin", "x_train_set.bin", "x_train_1.bin"})
    put_file(at(other), "mine");
  o.shard_tokens = 100'000;
  o.val_fraction = 0.0;
  tokenize(o);
  EXPECT_EQ(glob_files(at("x_train_0*.bin")), std::vector<std::string>{at("x_train_000000.bin")});
  EXPECT_FALSE(fs::exists(at("x_val_000000.bin")));
  for (const char* other : {"x_more_train_000000.bin", "x_train_set.bin", "x_train_1.bin"})
    EXPECT_EQ(bytes_of_file(at(other)), "mine");
}

TEST_F(Tokenize, AFailedRunLeavesAnOlderDataSetAlone) {
  tokenize(options(documents(30)));
  const std::string manifest = bytes_of_file(at("x.json")), shard = bytes_of_file(at("x_train_000000.bin"));
  TokenizeOptions o = options(documents(3) + "\xFF");
  expect_has(refused(o), {"in.txt", "UTF-8"});
  EXPECT_EQ(bytes_of_file(at("x.json")), manifest);
  EXPECT_EQ(bytes_of_file(at("x_train_000000.bin")), shard);
  EXPECT_FALSE(fs::exists(at("x_train_000000.bin.tmp")));
}

TEST_F(Tokenize, AFullDiskIsARunErrorAndLeavesNoManifest) {
  TokenizeOptions o = options(documents(4000));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 16384;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = message_of<RunError>([&] { tokenize(o); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  expect_has(message, {"x_train_000000.bin", "File too large"});
  EXPECT_FALSE(fs::exists(at("x.json")));
  EXPECT_TRUE(glob_files(at("x_train*")).empty());
}

TEST_F(Tokenize, AllFormsOfInputGiveTheSame) {
  tokenize(options(story(100)));
  const Ids text = read_shards(at("x_train_*.bin"));
  tokenize(options(gzip(story(100)), "in.txt.gz"));
  EXPECT_EQ(read_shards(at("x_train_*.bin")), text);
  std::string json = story(100);
  for (std::size_t i = 0; (i = json.find('\n', i)) != json.npos; i += 2) json.replace(i, 1, "\\n");
  tokenize(options("{\"text\": \"" + json + "\"}\n", "in.jsonl"));
  EXPECT_EQ(read_shards(at("x_train_*.bin")), text);
}

TEST_F(Tokenize, ALongDocumentIsEncodedAsOne) {
  const std::string text = story(50000);  // 3.4 MB, several pieces
  tokenize(options(text));
  EXPECT_EQ(read_shards(at("x_train_*.bin")), ids_of(text));
}

TEST_F(Tokenize, TheTokenizerMayBeTheCopyItself) {
  TokenizeOptions o = options(story(10));
  tokenize(o);
  o.tokenizer = at("x_tokenizer.model");
  tokenize(o);
  EXPECT_EQ(bytes_of_file(at("x_tokenizer.model")), bytes_of_file(small_tokenizer()));
}

TEST_F(Tokenize, WrongOptionsAreNamed) {
  const TokenizeOptions good = options(story(10));
  TokenizeOptions o = good;
  o.val_fraction = 1.5;
  expect_has(refused(o), {"--val-fraction", "1.5"});
  o.val_fraction = std::nan("");
  expect_has(refused(o), {"--val-fraction", "nan"});
  o = good;
  o.shard_tokens = 0;
  expect_has(refused(o), {"--shard-tokens", "0"});
  o.shard_tokens = std::int64_t{1} << 31;
  expect_has(refused(o), {"--shard-tokens", "2147483648"});
  o = good;
  o.rows = 1;
  expect_has(refused(o), {"--rows", "1"});
  o = good;
  o.inputs.clear();
  expect_has(refused(o), {"input"});
  o.inputs = {at("in.txt"), at("gone.txt")};
  expect_has(refused(o), {"gone.txt"});
  o = good;
  o.out_prefix = at("folder/");
  expect_has(refused(o), {"--out", "folder/"});
  o = good;
  o.tokenizer = at("gone.model");
  expect_has(refused(o), {"gone.model"});
  expect_has(refused(options("\n\n")), {"in.txt", "no text"});
  EXPECT_FALSE(fs::exists(at("x.json")));
}

TEST_F(Tokenize, FoldersAreMade) {
  TokenizeOptions o = options(story(10));
  o.out_prefix = at("no/such/x");
  tokenize(o);
  EXPECT_TRUE(fs::exists(at("no/such/x_train_000000.bin")));
}

TEST_F(Tokenize, RowsOfT5ArePaddedWithItsPad) {
  const std::string path = shared_data("tokenizers/t5_spiece.model");
  if (path.empty()) GTEST_SKIP() << "t5_spiece.model is not there";
  TokenizeOptions o = options(documents(3));
  o.tokenizer = path;
  o.rows = 32;
  tokenize(o);
  const Dataset data = open_dataset(at("x_train_*.bin"), "data.train", 32000);
  EXPECT_EQ(data.manifest->padding_id, 0);
  EXPECT_EQ(data.manifest->end_of_text, 1);
  EXPECT_EQ(data.shards[0]->bytes_per_token(), 2);
}

}  // namespace
}  // namespace compact
