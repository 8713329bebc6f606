#include "compact/data/loader.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "data_testing.h"

namespace compact {
namespace {

namespace fs = std::filesystem;

class Loading : public FolderTest {
 protected:
  std::shared_ptr<const Windows> windows(std::int64_t T, const std::string& glob = "*.bin") {
    return std::make_shared<Windows>(open_dataset(at(glob), "data.train", 64), T, 64);
  }
  std::string refused(std::int64_t T, const std::string& key, const std::string& glob) {
    return message_of<InputError>([&] { Windows(open_dataset(at(glob), key, 64), T, 64); });
  }
  void put(const std::string& name, std::size_t tokens, std::uint32_t first = 0) {
    put_file(at(name), shard_bytes(counting(tokens, 64, first)));
  }
  /// Rows of T tokens in r_train_000000.bin.
  void put_rows(const std::vector<std::uint32_t>& ids, std::int64_t T, std::int64_t padding,
                std::int64_t end) {
    put_file(at("r_train_000000.bin"), shard_bytes(ids));
    DataManifest m;
    m.path = at("r.json");
    m.vocab_size = 64;
    m.tokenizer_file = "t.model";
    m.end_of_text = end;
    m.rows = true;
    m.row_length = T;
    m.padding_id = padding;
    m.shards = {{"r_train_000000.bin", static_cast<std::int64_t>(ids.size()), 1,
                 xxh3_of_file(at("r_train_000000.bin"))}};
    write_manifest(m);
  }
  static void expect_window(const Windows& w, std::int64_t index, const std::vector<int>& inputs,
                            const std::vector<int>& labels) {
    std::vector<std::int32_t> in(static_cast<std::size_t>(w.T())), out(in.size());
    w.read(index, in.data(), out.data());
    EXPECT_EQ(in, inputs);
    EXPECT_EQ(out, labels);
  }
};

TEST_F(Loading, PackedWindowsHaveStrideTInsideEachShard) {
  put("a.bin", 13);      // 12 / 4 = 3 windows
  put("b.bin", 4);       // none: a window needs T + 1
  put("c.bin", 12, 20);  // 11 / 4 = 2 windows
  const auto w = windows(4);
  EXPECT_EQ(w->count(), 5);
  expect_window(*w, 0, {0, 1, 2, 3}, {1, 2, 3, 4});
  expect_window(*w, 2, {8, 9, 10, 11}, {9, 10, 11, 12});
  expect_window(*w, 3, {20, 21, 22, 23}, {21, 22, 23, 24});
  expect_window(*w, 4, {24, 25, 26, 27}, {25, 26, 27, 28});
}

TEST_F(Loading, OneTokenWindows) {
  put("a.bin", 3);
  const auto w = windows(1);
  EXPECT_EQ(w->count(), 2);
  expect_window(*w, 1, {1}, {2});
}

TEST_F(Loading, RowsMaskPaddingAndTheLastPosition) {
  put_rows({5, 9, 2, 0, 0, 4, 3, 8, 6, 7, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0}, 5, 0, 2);
  const auto w = windows(5);
  ASSERT_EQ(w->count(), 4);
  expect_window(*w, 0, {5, 9, 2, 0, 0}, {9, 2, -100, -100, -100});
  expect_window(*w, 1, {4, 3, 8, 6, 7}, {3, 8, 6, 7, -100});
  expect_window(*w, 2, {0, 0, 0, 0, 0}, {-100, -100, -100, -100, -100});
  expect_window(*w, 3, {9, 0, 0, 0, 0}, {-100, -100, -100, -100, -100});
}

TEST_F(Loading, WherePaddingIsTheEndTheFirstOfTheRunCounts) {
  put_rows({5, 9, 2, 2, 2, 4, 3, 8, 6, 2, 4, 3, 8, 6, 7}, 5, 2, 2);
  const auto w = windows(5);
  expect_window(*w, 0, {5, 9, 2, 2, 2}, {9, 2, -100, -100, -100});
  expect_window(*w, 1, {4, 3, 8, 6, 2}, {3, 8, 6, 2, -100});
  expect_window(*w, 2, {4, 3, 8, 6, 7}, {3, 8, 6, 7, -100});
}

TEST_F(Loading, LabelShiftIsAsPublished) {
  const std::string path = COMPACT_SOURCE_DIR "/../shared/cases/numeric/label_shift.json";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto json = nlohmann::json::parse(bytes_of_file(path));
  const auto T = json["inputs"]["T"].get<std::int64_t>();
  for (std::size_t k = 0; k < json["inputs"]["windows"].size(); ++k) {
    auto ids = json["inputs"]["windows"][k].get<std::vector<std::uint32_t>>();
    put_file(at("p.bin"), shard_bytes(ids));
    expect_window(*windows(T, "p.bin"), 0, json["expected"]["packed"][k]["inputs"].get<std::vector<int>>(),
                  json["expected"]["packed"][k]["labels"].get<std::vector<int>>());
    ids.resize(static_cast<std::size_t>(T));
    put_rows(ids, T, json["inputs"]["padding_id"].get<std::int64_t>(), 1);
    expect_window(*windows(T, "r_*.bin"), 0, json["expected"]["rows"][k]["inputs"].get<std::vector<int>>(),
                  json["expected"]["rows"][k]["labels"].get<std::vector<int>>());
  }
}

TEST_F(Loading, LessThanAWindowIsSaidWithKeyAndSize) {
  put("three.bin", 16);
  expect_has(refused(16, "data.val", "three.bin"),
             {"data.val", "three.bin", "16 tokens", "17", "data.sequence_length"});
  fs::remove(at("three.bin"));
  put_rows({1, 2, 3, 4}, 4, 0, 2);
  expect_has(refused(8, "data.train", "r_*.bin"), {"data.train", "4", "8", "data.sequence_length"});
}

TEST_F(Loading, OrderIsAPermutationThatDependsOnSeedAndEpoch) {
  for (const std::int64_t count : {0, 1, 2, 3, 1000}) {
    std::vector<std::int64_t> order = epoch_order(42, 0, count), sorted = order, all(order.size());
    std::iota(all.begin(), all.end(), 0);
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, all);
    EXPECT_EQ(order, epoch_order(42, 0, count));
    if (count < 1000) continue;
    EXPECT_NE(order, all);
    EXPECT_NE(order, epoch_order(42, 1, count));
    EXPECT_NE(order, epoch_order(43, 0, count));
  }
}

TEST_F(Loading, EveryOrderOfThreeIsAboutAsFrequent) {
  std::map<std::vector<std::int64_t>, int> seen;
  for (std::uint32_t epoch = 0; epoch < 6000; ++epoch) ++seen[epoch_order(7, epoch, 3)];
  ASSERT_EQ(seen.size(), 6u);
  for (const auto& [order, times] : seen) EXPECT_NEAR(times, 1000, 130);  // 4.5 standard deviations
}

TEST_F(Loading, StepsFollowTheOrderOverEpochs) {
  put("a.bin", 41);  // 10 windows of 4
  const auto w = windows(4);
  Loader loader(w, 42, 3, 0);
  std::vector<std::int64_t> order;
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch)
    for (const std::int64_t i : epoch_order(42, epoch, 10)) order.push_back(i);
  for (std::int64_t step = 0; step < 9; ++step) {
    const StepBatch b = loader.next();
    EXPECT_EQ(b.first_sample, step * 3);
    EXPECT_EQ(b.sequences, 3);
    EXPECT_EQ(b.targets, 12);
    ASSERT_EQ(b.inputs.size(), 12u);
    for (std::int64_t k = 0; k < 3; ++k) {
      std::vector<std::int32_t> in(4), out(4);
      w->read(order[static_cast<std::size_t>(step * 3 + k)], in.data(), out.data());
      EXPECT_TRUE(std::equal(in.begin(), in.end(), b.inputs.begin() + k * 4));
      EXPECT_TRUE(std::equal(out.begin(), out.end(), b.labels.begin() + k * 4));
    }
  }
}

TEST_F(Loading, OneNumberIsTheState) {
  put("a.bin", 200);
  const auto w = windows(4);
  Loader whole(w, 9, 5, 0);
  for (int i = 0; i < 7; ++i) whole.next();
  Loader resumed(w, 9, 5, 35);
  for (int i = 0; i < 20; ++i) {
    const StepBatch a = whole.next(), b = resumed.next();
    EXPECT_EQ(a.first_sample, b.first_sample);
    EXPECT_EQ(a.inputs, b.inputs);
    EXPECT_EQ(a.labels, b.labels);
  }
}

TEST_F(Loading, MaskedTargetsAreNotCounted) {
  put_rows({5, 9, 2, 0, 0, 4, 3, 8, 6, 7}, 5, 0, 2);
  Loader loader(windows(5), 1, 2, 0);
  EXPECT_EQ(loader.next().targets, 2 + 4);
}

TEST_F(Loading, AShardCutOffMeanwhileIsAnErrorOfNext) {
  put("train.bin", 40001);
  const auto w = windows(4);
  Loader loader(w, 3, 8, 0);
  loader.next();
  fs::resize_file(at("train.bin"), 1030);
  const std::string message = message_of<InputError>([&] {
    for (int i = 0; i < 10; ++i) loader.next();
  });
  expect_has(message, {"train.bin", "cut off"});
  EXPECT_THROW(loader.next(), InputError);  // and stays one
}

TEST_F(Loading, TheReaderIsAheadAndEndsWithTheLoader) {
  put("a.bin", 4000);
  const auto w = windows(4);
  Loader loader(w, 3, 8, 0);
  loader.next();
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    loader.next();
  }
  EXPECT_LT(loader.waited_seconds(), 0.05);
}

}  // namespace
}  // namespace compact
