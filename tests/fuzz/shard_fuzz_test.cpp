#include <random>

#include "compact/data/loader.h"
#include "src/data/document_reader.h"
#include "unit/data/data_testing.h"

namespace compact {
namespace {

/// Valid files with some bytes changed, put in, taken out or the end cut off, the same ones every time: what
/// reads them either succeeds or says what is wrong.
class DataFuzz : public FolderTest {
 protected:
  std::string mutated(const std::string& bytes) {
    std::string out = bytes;
    for (auto n = random_() % 4 + 1; n > 0 && !out.empty(); --n) {
      const std::size_t at =
          random_() % 3 == 0 ? random_() % std::min<std::size_t>(out.size(), 16) : random_() % out.size();
      switch (random_() % 6) {
        case 0:
          out[at] = static_cast<char>(random_());
          break;
        case 1:
          out[at] = static_cast<char>(out[at] ^ 1 << random_() % 8);
          break;
        case 2:
          out.erase(at, random_() % 8 + 1);
          break;
        case 3:
          out.insert(at, std::string(random_() % 8 + 1, static_cast<char>(random_())));
          break;
        case 4:
          out.resize(at);
          break;
        default:
          out.insert(at, out.substr(random_() % out.size(), 20));
          break;
      }
    }
    return out;
  }
  template <typename Call>
  void attempt(Call call) {
    try {
      call();
      ++fine_;
    } catch (const InputError& e) {
      ++refused_;
      EXPECT_GT(std::string(e.what()).size(), 20u);
    } catch (const RunError& e) {
      ++refused_;
    }
  }
  /// Both ends must have been met, or the fuzzing tests nothing.
  void expect_both() const {
    EXPECT_GT(fine_, 0);
    EXPECT_GT(refused_, 0);
  }
  std::mt19937 random_{12345};
  int fine_ = 0, refused_ = 0;
};

TEST_F(DataFuzz, Shards) {
  for (const int width : {2, 4}) {
    const std::string good = shard_bytes(counting(300, 64), width);
    for (int round = 0; round < 1000; ++round) {
      put_file(at("s.bin"), mutated(good));
      attempt([&] {
        const Windows windows(open_dataset(at("s.bin"), "data.train", 64), 16, 64);
        std::vector<std::int32_t> inputs(16), labels(16);
        for (std::int64_t i = 0; i < windows.count(); ++i) {
          windows.read(i, inputs.data(), labels.data());
          for (const std::int32_t id : inputs) ASSERT_TRUE(id >= 0 && id < 64);
          for (const std::int32_t id : labels) ASSERT_TRUE(id >= 0 && id < 64);
        }
      });
    }
  }
  expect_both();
}

TEST_F(DataFuzz, Manifests) {
  put_file(at("x_train_000000.bin"), shard_bytes(counting(320, 64)));
  DataManifest m;
  m.path = at("x.json");
  m.vocab_size = 64;
  m.tokenizer_file = "x_tokenizer.model";
  m.end_of_text = 2;
  m.rows = true;
  m.row_length = 16;
  m.padding_id = 0;
  m.shards = {{"x_train_000000.bin", 320, 20, xxh3_of_file(at("x_train_000000.bin"))}};
  write_manifest(m);
  const std::string good = bytes_of_file(at("x.json"));
  for (int round = 0; round < 1500; ++round) {
    put_file(at("x.json"), mutated(good));
    attempt([&] {
      const Windows windows(open_dataset(at("x_train_*.bin"), "data.train", 64), 16, 64);
      std::vector<std::int32_t> inputs(16), labels(16);
      for (std::int64_t i = 0; i < windows.count(); ++i) windows.read(i, inputs.data(), labels.data());
    });
  }
  expect_both();
}

TEST_F(DataFuzz, Texts) {
  const std::string text =
      "\xEF\xBB\xBF" + story(3) + "<|endoftext|>\r\n\xC3\xA9t\xC3\xA9 \xE2\x82\xAC\r\n" + story(2);
  const std::string json =
      "{\"text\": \"a\\u00e9\\n\", \"id\": [1, 2.5, null]}\n{\"text\": \"\xE2\x82\xAC b\"}\n";
  const std::vector<std::pair<std::string, std::string>> inputs = {
      {"a.txt", text}, {"b.jsonl", json}, {"c.txt.gz", gzip(text)}, {"d.jsonl.gz", gzip(json)}};
  for (const auto& [name, good] : inputs) {
    for (int round = 0; round < 800; ++round) {
      put_file(at(name), mutated(good));
      attempt([&, file = at(name)] {
        DocumentReader reader(file, nullptr);
        DocumentReader::Piece piece;
        while (reader.next(piece)) {
          Utf8Checker checker;
          ASSERT_TRUE(checker.accept(piece.text) && checker.complete());
        }
      });
    }
  }
  expect_both();
}

TEST_F(DataFuzz, Tokenizers) {
  const std::string good = bytes_of_file(small_tokenizer());
  for (int round = 0; round < 600; ++round) {
    put_file(at("t.model"), mutated(good));
    attempt([&] {
      const Tokenizer t(at("t.model"));
      std::vector<std::int32_t> ids;
      t.encode("One day a girl found \xE2\x82\xAC 12 </s>\n", ids);
      for (const std::int32_t id : ids) ASSERT_TRUE(id >= 0 && id < t.vocab_size());
      // A changed byte may have made a piece of the model invalid; the text that comes out never is.
      for (std::int32_t id = 0; id < t.vocab_size(); ++id) ids.push_back(id);
      Utf8Checker checker;
      ASSERT_TRUE(checker.accept(t.decode(ids)) && checker.complete());
    });
  }
  expect_both();
}

}  // namespace
}  // namespace compact
