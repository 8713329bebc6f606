#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "compact/train/evaluator.h"
#include "rank_runs.h"
#include "src/train/rank_checks.h"
#include "unit/data/data_testing.h"

/// What ranks read: shares of steps and of validation sets, and that all of them read the same.
namespace compact::testing {
namespace {

namespace fs = std::filesystem;

class RanksData : public FolderTest {
 protected:
  /// 123 windows of 8.
  std::shared_ptr<const Windows> windows() {
    put_file(at("a.bin"), shard_bytes(counting(600, 61)));
    put_file(at("b.bin"), shard_bytes(counting(400, 61, 17)));
    return std::make_shared<Windows>(open_dataset(at("*.bin"), "data.train", 61), kLength, 61);
  }
};

// Over the ends of epochs, from the start and from a resumed sample.
TEST_F(RanksData, SharesOfAStepAreTheStep) {
  const auto w = windows();
  for (const int size : {1, 2, 3, 4, 6, 12})
    for (const std::int64_t first : {0, 96}) {
      Loader whole(w, 42, kSequences, first);
      std::vector<std::unique_ptr<Loader>> shares;
      for (int rank = 0; rank < size; ++rank)
        shares.push_back(std::make_unique<Loader>(w, 42, kSequences, first, LoaderShare{rank, size}));
      for (int step = 0; step < 14; ++step) {
        const StepBatch want = whole.next();
        StepBatch got;
        for (const auto& share : shares) {
          const StepBatch part = share->next();
          EXPECT_EQ(part.sequences, kSequences / size);
          EXPECT_EQ(part.first_sample, want.first_sample + got.sequences);
          got.inputs.insert(got.inputs.end(), part.inputs.begin(), part.inputs.end());
          got.labels.insert(got.labels.end(), part.labels.begin(), part.labels.end());
          got.sequences += part.sequences;
          got.targets += part.targets;
        }
        EXPECT_EQ(got.inputs, want.inputs) << size << " ranks, step " << step;
        EXPECT_EQ(got.labels, want.labels);
        EXPECT_EQ(got.targets, want.targets);
      }
    }
  EXPECT_THROW(Loader(w, 42, kSequences, 0, {0, 5}), std::logic_error);
}

const auto never = [] { return false; };

/// A loss that the sequences determine; some positions do not count.
LossSum plain_loss(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& labels,
                   std::int64_t sequences) {
  LossSum sum;
  for (std::size_t i = 0; i < static_cast<std::size_t>(sequences * kLength); ++i) {
    if (labels[i] % 3 == 0) continue;
    sum.sum += std::sqrt(inputs[i] + 0.1) * labels[i];
    ++sum.tokens;
  }
  return sum;
}

void expect_same(const Evaluation& got, const Evaluation& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_NEAR(got.loss / want.loss, 1, 1e-12);
  EXPECT_NEAR(got.galore_loss / want.galore_loss, 1, 1e-12);
}

TEST_F(RanksData, EvaluationOfRanksIsThatOfOne) {
  const auto w = windows();
  const auto local = make_local_communicator();
  struct Size {
    std::int64_t batch;
    std::optional<std::int64_t> most;
  };
  // A short last batch, fewer batches than ranks, one window, and none counted twice.
  for (const Size& size : {Size{6, {}}, {1, {}}, {100, {}}, {123, {}}, {5, 200}, {6, 8}, {7, 1000000}}) {
    const auto want = evaluate(*w, size.batch, size.most, plain_loss, never, *local);
    ASSERT_TRUE(want);
    EXPECT_GT(want->tokens, 0);
    for (const int ranks : {2, 3, 4, 5}) {
      std::atomic<std::int64_t> sequences = 0;
      on_ranks(ranks, [&](Communicator& c) {
        const auto got = evaluate(
            *w, size.batch, size.most,
            [&](const auto& inputs, const auto& labels, std::int64_t n) {
              sequences += n;
              return plain_loss(inputs, labels, n);
            },
            never, c);
        ASSERT_TRUE(got);
        expect_same(*got, *want);
      });
      EXPECT_EQ(sequences, size.most ? std::clamp<std::int64_t>(*size.most / kLength, 1, 123) : 123);
    }
  }
}

TEST_F(RanksData, EvaluationByEnginesIsThatOfOne) {
  const auto w = windows();
  std::optional<Evaluation> want;
  for (const int size : {1, 2, 4})
    on_ranks(size, [&](Communicator& c) {
      RankEngine rank(ranks_run("adamw", 6), small_model(), c);
      for (std::int64_t s = 0; s < 2 && size > 1; ++s) rank.step(ragged_batch(s), s);
      rank.engine.initialize();  // the weights that one rank starts from, after other work
      const auto got = evaluate(
          *w, 6, {},
          [&](const auto& inputs, const auto& labels, std::int64_t n) {
            return rank.engine.evaluate(inputs, labels, n);
          },
          never, c);
      ASSERT_TRUE(got);
      if (size == 1) want = got;
      expect_same(*got, *want);
      EXPECT_LE(rank.arena.ledger().peak(), rank.plan.peak);
    });
}

TEST_F(RanksData, AnEvaluationStopsOrFailsOnAllRanks) {
  const auto w = windows();
  for (int told = 0; told < 3; ++told) {
    on_ranks(3, [&](Communicator& c) {
      int asked = 0;
      const auto stop = [&] { return c.rank() == told && ++asked > 3; };
      EXPECT_FALSE(evaluate(*w, 4, {}, plain_loss, stop, c));
    });
    const auto thrown = outcomes(thread_ranks(3), [&](Communicator& c) {
      evaluate(
          *w, 4, {},
          [&](const auto& inputs, const auto& labels, std::int64_t n) {
            if (c.rank() == told) input_error("the shard was cut off");
            return plain_loss(inputs, labels, n);
          },
          never, c);
    });
    // What rank 0 alone finds it says as a run of one process would.
    const std::string said =
        told == 0 ? "input error: the shard" : "input error: rank " + std::to_string(told);
    EXPECT_TRUE(testing::told(thrown[0]).starts_with(said)) << testing::told(thrown[0]);
    EXPECT_EQ(testing::told(thrown[1]), "said elsewhere: 2");
    EXPECT_EQ(testing::told(thrown[2]), "said elsewhere: 2");
  }
}

// ---- that all ranks read the same
// --------------------------------------------------------------------------

/// What one rank was given.
struct Given {
  RunConfig run = ranks_run("compact", 6);
  ModelConfig model = small_model();
};

class RanksAgree : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    for (const char* folder : {"0", "1", "2"}) {
      fs::create_directory(at(folder));
      put_file(at(folder) + "/train.bin", shard_bytes(counting(600, 61)));
      put_file(at(folder) + "/val.bin", shard_bytes(counting(100, 61, 3)));
    }
  }

  /// What rank 0 of three says where rank 2 has what `change` makes of it; "" where all agree. Each rank has
  /// a working directory of its own, so that equal paths are other files, as on other machines.
  std::string says(const std::function<void(Given&)>& change) {
    std::atomic<bool> apart = true;
    const auto thrown = outcomes(thread_ranks(3), [&](Communicator& c) {
      apart = unshare(CLONE_FS) == 0 && apart;
      const auto folder = at(std::to_string(c.rank()));
      double all[] = {apart && chdir(folder.c_str()) == 0 ? 1.0 : 0.0};
      c.sum(all);
      if (all[0] < 3) return;
      Given given;
      if (c.rank() == 2) change(given);
      const Dataset train = open_dataset("train.bin", "data.train", 61),
                    val = given.run.data.val.empty() ? Dataset() : open_dataset("val.bin", "data.val", 61);
      check_ranks_agree(c, given.run, "run.json", given.model, train, val);
    });
    if (!apart) return "skipped";
    if (!thrown[0]) {
      EXPECT_EQ(told(thrown[1]), "");
      EXPECT_EQ(told(thrown[2]), "");
      return "";
    }
    EXPECT_EQ(told(thrown[1]), "said elsewhere: 2");
    EXPECT_EQ(told(thrown[2]), "said elsewhere: 2");
    return told(thrown[0]);
  }
};

#define COMPACT_SAYS(variable, ...)               \
  const std::string variable = says(__VA_ARGS__); \
  if (variable == "skipped") GTEST_SKIP() << "threads may have no working directory of their own here"

TEST_F(RanksAgree, OnEqualFiles) {
  COMPACT_SAYS(same, [](Given&) {});
  EXPECT_EQ(same, "");
}

TEST_F(RanksAgree, WithOtherThreadsAndCards) {
  COMPACT_SAYS(same, [](Given& given) {
    given.run.threads = 7;
    given.run.cuda.device = 3;
  });
  EXPECT_EQ(same, "");
}

TEST_F(RanksAgree, NotOnAnotherLearningRate) {
  COMPACT_SAYS(text, [](Given& given) { given.run.optimizer.lr = 0.02; });
  expect_has(text, {"input error", "run.json", "optimizer.lr", "0.01", "0.02", "rank 2"});
  EXPECT_EQ(text.find("rank 2 of 3, on"), std::string::npos) << "all found out: " << text;
}

TEST_F(RanksAgree, NotOnAnotherSeedOrSharding) {
  COMPACT_SAYS(seed, [](Given& given) { given.run.seed = 43; });
  expect_has(seed, {"seed", "42", "43", "rank 2"});
  COMPACT_SAYS(sharding, [](Given& given) { given.run.dist.shard_optimizer = true; });
  expect_has(sharding, {"dist.shard_optimizer", "true", "false", "rank 2"});
}

TEST_F(RanksAgree, NotOnAnotherModel) {
  COMPACT_SAYS(text, [](Given& given) { given.model.intermediate_size = 48; });
  expect_has(text, {"input error", "model.json", "intermediate_size", "40", "48", "rank 2"});
}

TEST_F(RanksAgree, NotOnAnotherContentOfTheSameSize) {
  COMPACT_SAYS(text, [this](Given&) { put_file(at("2") + "/val.bin", shard_bytes(counting(100, 61, 4))); });
  expect_has(text, {"input error", "val.bin", "100 tokens", "rank 2"});
  EXPECT_EQ(text.find("train.bin"), std::string::npos) << text;
}

TEST_F(RanksAgree, NotOnAnotherSize) {
  COMPACT_SAYS(size, [this](Given&) { put_file(at("2") + "/train.bin", shard_bytes(counting(608, 61))); });
  expect_has(size, {"input error", "train.bin", "600 tokens", "608 tokens", "rank 2"});
}

TEST(RanksThatResume, NeedTheSameCheckpoint) {
  const auto thrown = outcomes(thread_ranks(3), [](Communicator& c) {
    require_same_checkpoint(c, "out/checkpoints/step_4", "out");
    require_same_checkpoint(c, c.rank() == 1 ? "out/checkpoints/step_2" : "out/checkpoints/step_4", "out");
  });
  expect_has(told(thrown[0]), {"input error", "step_4", "rank 1", "step_2", "\"out\""});
  EXPECT_EQ(told(thrown[1]), "said elsewhere: 2");
}

TEST(RanksThatSave, NeedTheSameWeights) {
  const auto thrown = outcomes(thread_ranks(3), [&](Communicator& c) {
    RankEngine rank(ranks_run("adamw", 4), small_model(), c);
    rank.step(ragged_batch(0), 0);
    require_same_weights(c, rank.engine.check_weights().fingerprint, 1);
    if (c.rank() == 2) rank.engine.model().parameters()[4].weight.f32()[7] += 0.25f;
    require_same_weights(c, rank.engine.check_weights().fingerprint, 1);
  });
  expect_has(told(thrown[0]), {"run error", "step 1", "rank 2"});
  EXPECT_EQ(told(thrown[1]), "said elsewhere: 1");
  EXPECT_EQ(told(thrown[2]), "said elsewhere: 1");
}

}  // namespace
}  // namespace compact::testing
