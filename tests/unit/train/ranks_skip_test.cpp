#include "compact/core/error.h"
#include "rank_runs.h"

/// Steps that fail on one rank: no rank may move.
namespace compact::testing {
namespace {

/// Passes everything on, and lets the test change what is sent.
class Tampering final : public Communicator {
 public:
  explicit Tampering(Communicator& inner) : inner_(inner) {}
  /// Called with the tensors of each reduction of gradients.
  std::function<void(std::span<const Tensor>)> before_reduce;

  RankPlace place() const override { return inner_.place(); }
  void sum(std::span<double> values) override { inner_.sum(values); }
  std::vector<std::string> gather_texts(const std::string& text) override {
    return inner_.gather_texts(text);
  }
  std::vector<std::byte> collect(std::span<const std::byte> bytes) override { return inner_.collect(bytes); }
  void reserve(Context& context, std::int64_t bucket_bytes) override {
    inner_.reserve(context, bucket_bytes);
  }
  void all_reduce(Context& context, std::span<const Tensor> tensors) override {
    tamper(context, tensors);
    inner_.all_reduce(context, tensors);
  }
  void reduce(Context& context, std::span<const Tensor> tensors) override {
    tamper(context, tensors);
    inner_.reduce(context, tensors);
  }
  void gather(Context& context, std::span<const Tensor> tensors) override { inner_.gather(context, tensors); }
  void wait(Context& context) override { inner_.wait(context); }
  void set_patience(Patience patience) override { inner_.set_patience(std::move(patience)); }
  [[noreturn]] void fail(int code, const std::string& text) override {
    inner_.fail(code, text);
    std::abort();
  }

 private:
  void tamper(const Context& context, std::span<const Tensor> tensors) const {
    // The loss is the only F64.
    if (before_reduce && !context.planning() && tensors[0].dtype != DType::F64) before_reduce(tensors);
  }
  Communicator& inner_;
};

/// Where a rank's gradient is not finite.
enum class Where {
  FirstRow,    // the first of the head, which is rank 0's to update
  LastRow,     // and the last, the last rank's
  LastTensor,  // of the last bucket
  Loss,        // everywhere, since the rank's loss is not
};

struct Case {
  const char* optimizer;
  bool sharded;
  Where where;
};

class RanksSkip : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int kSize = 3, kBad = 1;  // the rank that fails alone
  static constexpr std::int64_t kBadStep = 2;

  static RunConfig run_of(const std::string& update = "per_step") {
    RunConfig run = ranks_run(GetParam().optimizer, update == "per_layer" ? 8 : 4);
    run.compact.update_gap = 2;  // the bad step brings a new P
    run.dist.shard_optimizer = GetParam().sharded;
    run.dist.bucket_bytes = 4096;
    run.optimizer.update = update;
    return run;
  }

  /// Token 60 is in the data of the bad rank alone, and there only in the bad step.
  static StepBatch batch(std::int64_t step) {
    StepBatch b = ragged_batch(step + 1);
    for (auto& id : b.inputs)
      if (id == 60) id = 1;
    if (step == kBadStep) b.inputs[kSequences / kSize * kLength * kBad] = 60;
    return b;
  }

  /// Gives the rank what makes its step fail. `calls`: reductions of a step.
  static void poison(Tampering& communicator, Engine& engine, int& call, int calls) {
    if (GetParam().where == Where::Loss) {  // on all ranks: weights stay the same
      for (const NamedTensor& t : engine.model().named_weights())
        if (t.name == "model.embed_tokens.weight") t.data.f32()[60 * t.data.cols() + 3] = INFINITY;
      return;
    }
    if (communicator.rank() != kBad) return;
    call = 0;
    communicator.before_reduce = [&call, calls](std::span<const Tensor> tensors) {
      ++call;
      const Tensor& first = tensors.front();
      if (GetParam().where == Where::FirstRow && call == 1) first.f32()[0] = NAN;
      if (GetParam().where == Where::LastRow && call == 1) first.f32()[first.elements() - 1] = INFINITY;
      if (GetParam().where == Where::LastTensor && call == calls) tensors.back().f32()[0] = NAN;
    };
  }
};

TEST_P(RanksSkip, NothingMovesOnAnyRank) {
  std::vector<std::map<std::string, std::vector<float>>> bad(kSize), idle(kSize);
  for (const bool poisoned : {true, false})
    on_ranks(kSize, [&](Communicator& threads) {
      const auto me = static_cast<std::size_t>(threads.rank());
      Tampering communicator(threads);
      RankEngine rank(run_of(), small_model(), communicator);
      int calls = 0;
      communicator.before_reduce = [&](std::span<const Tensor>) { ++calls; };
      EXPECT_TRUE(rank.step(batch(0), 0).applied);
      const int calls_of_a_step = calls;
      EXPECT_GT(calls_of_a_step, 3);
      communicator.before_reduce = nullptr;
      EXPECT_TRUE(rank.step(batch(1), 1).applied);
      StepBatch at_bad = batch(kBadStep);
      int call = 0;
      if (poisoned) {
        poison(communicator, rank.engine, call, calls_of_a_step);
      } else {  // without targets nothing moves either
        std::fill(at_bad.labels.begin(), at_bad.labels.end(), -100);
        at_bad.targets = 0;
      }
      const std::uint64_t before = hash_of_weights(rank.engine);
      const StepResult result = rank.step(at_bad, kBadStep);
      EXPECT_FALSE(result.applied) << me;
      EXPECT_EQ(hash_of_weights(rank.engine), before);
      EXPECT_EQ(rank.engine.exponent(), 2);
      if (poisoned) {
        EXPECT_FALSE(std::isfinite(result.loss) && std::isfinite(result.grad_norm));
        EXPECT_EQ(std::isfinite(result.loss), GetParam().where != Where::Loss);
      }
      communicator.before_reduce = nullptr;
      for (const NamedTensor& t : rank.engine.model().named_weights())
        if (t.name == "model.embed_tokens.weight") t.data.f32()[60 * t.data.cols() + 3] = 0.125f;
      for (std::int64_t s = kBadStep + 1; s < 6; ++s) EXPECT_TRUE(rank.step(batch(s), s).applied);
      EXPECT_EQ(rank.engine.exponent(), 5);
      (poisoned ? bad : idle)[me] = everything(rank.engine);
    });
  for (std::size_t k = 0; k < kSize; ++k) {
    EXPECT_TRUE(bad[k] == idle[k]) << "rank " << k;
    for (const auto& [name, values] : bad[k])
      if (name.ends_with(".weight")) {
        EXPECT_TRUE(same_bits(values, bad[0].at(name))) << k << " " << name;
      }
  }
}

TEST_P(RanksSkip, UpdatesInBackwardEndTheRunOnAllRanks) {
  const auto thrown = outcomes(thread_ranks(kSize), [&](Communicator& threads) {
    Tampering communicator(threads);
    RankEngine rank(run_of("per_layer"), small_model(), communicator);
    int calls = 0;
    communicator.before_reduce = [&](std::span<const Tensor>) { ++calls; };
    EXPECT_TRUE(rank.step(batch(0), 0).applied);
    communicator.before_reduce = nullptr;
    EXPECT_TRUE(rank.step(batch(1), 1).applied);
    int call = 0;
    poison(communicator, rank.engine, call, calls);
    try {
      rank.step(batch(kBadStep), kBadStep);
      ADD_FAILURE() << "rank " << threads.rank() << " goes on";
    } catch (const RunError& error) {
      EXPECT_NE(std::string(error.what()).find("update 2"), std::string::npos) << error.what();
    }
    double still_here[] = {1};  // none waits for another
    threads.sum(still_here);
    EXPECT_EQ(still_here[0], kSize);
  });
  for (const auto& t : thrown) EXPECT_EQ(told(t), "");
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RanksSkip,
    ::testing::Values(Case{"adamw", false, Where::FirstRow}, Case{"adamw", true, Where::FirstRow},
                      Case{"compact", true, Where::LastRow}, Case{"compact", false, Where::LastTensor},
                      Case{"adamw", true, Where::LastTensor}, Case{"compact", false, Where::Loss},
                      Case{"adamw", true, Where::Loss}));

}  // namespace
}  // namespace compact::testing
