#include "compact/core/error.h"
#include "rank_runs.h"

/// The engine on several ranks, against the same steps on one.
namespace compact::testing {
namespace {

/// How far the numbers of ranks may be from those of one rank. In fp32 only the order of sums differs: one
/// rank with other micro-batches comes as near (losses 2e-6, norms 3e-6, weights 1e-5 after 50 steps). In
/// bf16 a last bit may round a weight the other way, and the runs part from there.
struct Apart {
  double loss, norm, weights;
};
constexpr Apart kFp32{1e-5, 3e-5, 1e-4}, kBf16{0.1, 0.1, 0.4};

struct Variant {
  std::string name, optimizer;
  /// Whether rows that are updated apart are those of the whole to the bit: libraries sum the products of
  /// dense projections in an order that depends on the rows, and the norms of shares are no whole's norm.
  bool same_sharded = true;
  Apart apart = kFp32;
  void (*change)(RunConfig&) = [](RunConfig&) {};
};

const Variant kVariants[] = {
    {"adamw", "adamw"},
    {"adamw_clipped", "adamw", false, kFp32,
     [](RunConfig& run) {
       run.optimizer.clip_norm = 0.5;
       run.optimizer.weight_decay = 0.1;
     }},
    {"gaussian", "compact", false},
    {"orthonormal_per_weight", "compact", false, kFp32,
     [](RunConfig& run) {
       run.compact.projection = "orthonormal";
       run.compact.sharing = "per_weight";
       run.compact.moments_at_reseed = "transport";
     }},
    {"sparse", "compact", true, kFp32,
     [](RunConfig& run) {
       run.compact.projection = "sparse";
       run.compact.moments_at_reseed = "reset";
       run.optimizer.second_moment = "per_channel";
     }},
    {"bf16", "adamw", true, kBf16,
     [](RunConfig& run) {
       run.precision = "bf16";
       run.optimizer.gradient_dtype = "bf16";
       run.optimizer.master_weights = true;
     }},
    {"bf16_compact", "compact", false, kBf16,
     [](RunConfig& run) {
       run.precision = run.optimizer.state_dtype = "bf16";
       run.compact.sharing = "per_weight";
     }},
};

class Ranks : public ::testing::TestWithParam<Variant> {
 protected:
  static RunConfig run_of(std::int64_t micro, bool sharded = false) {
    RunConfig run = ranks_run(GetParam().optimizer, micro);
    GetParam().change(run);
    run.dist.shard_optimizer = sharded;
    return run;
  }
};

TEST_P(Ranks, TrainAsOneRankDoes) {
  constexpr int kSteps = 50;  // four times a new P
  const RankSaw one = train_ranks(run_of(6), 1, kSteps)[0];
  EXPECT_LT(one.losses.back(), one.losses.front() - 1);
  const Apart& apart = GetParam().apart;
  struct Split {
    int size;
    std::int64_t micro;
    bool sharded;
  };
  for (const Split& split :
       {Split{2, 12, false}, {2, 3, true}, {3, 8, true}, {3, 2, false}, {4, 6, true}, {4, 1, false}}) {
    const RankSaw got = train_ranks(run_of(split.micro, split.sharded), split.size, kSteps)[0];
    const std::string what =
        fmt::format("{} ranks, micro-batch {}{}", split.size, split.micro, split.sharded ? ", sharded" : "");
    EXPECT_NEAR(got.losses[0], one.losses[0], 1e-6) << what;
    for (std::size_t s = 0; s < kSteps; ++s) {
      ASSERT_NEAR(got.losses[s], one.losses[s], apart.loss) << what << ", step " << s;
      ASSERT_NEAR(got.norms[s] / one.norms[s], 1, apart.norm) << what << ", step " << s;
    }
    for (const auto& [name, weights] : one.weights)
      expect_near_largest(got.weights.at(name), weights, apart.weights, what + ": " + name);
  }
}

/// States put together from the ranks' rows.
std::map<std::string, std::vector<float>> whole_states(const std::vector<RankSaw>& ranks) {
  std::map<std::string, std::vector<float>> all;
  for (const RankSaw& rank : ranks)
    for (const auto& [name, values] : rank.states)
      all[name].insert(all[name].end(), values.begin(), values.end());
  return all;
}

TEST_P(Ranks, WithOwnRowsTheyMakeTheSameUpdates) {
  for (const int size : {2, 3}) {
    const auto all = train_ranks(run_of(4, false), size, 26), shares = train_ranks(run_of(4, true), size, 26);
    const auto states = whole_states(shares);
    ASSERT_EQ(states.size(), all[0].states.size());
    for (const auto& [name, values] : all[0].states) EXPECT_EQ(states.at(name).size(), values.size()) << name;
    for (std::size_t s = 0; s < all[0].norms.size(); ++s)
      EXPECT_NEAR(shares[0].norms[s] / all[0].norms[s], 1,
                  GetParam().same_sharded ? 1e-6 : GetParam().apart.norm);
    if (!GetParam().same_sharded) continue;
    EXPECT_EQ(shares[0].losses, all[0].losses);
    EXPECT_EQ(shares[0].weights_after, all[0].weights_after);
    for (const auto& [name, values] : all[0].states) EXPECT_TRUE(same_bits(states.at(name), values)) << name;
  }
}

TEST_P(Ranks, EqualRunsGiveEqualBits) {
  for (const bool sharded : {false, true}) {
    RunConfig run = run_of(2, sharded);
    run.compact.update_gap = 5;
    const auto first = train_ranks(run, 3, 7);
    EXPECT_TRUE(train_ranks(run, 3, 7) == first) << "the same again";
    for (const std::int64_t bucket : {1, 1024, 5000}) {
      run.dist.bucket_bytes = bucket;
      EXPECT_TRUE(train_ranks(run, 3, 7) == first) << "buckets of " << bucket;
    }
  }
}

TEST_P(Ranks, UpdatesInBackwardChangeNoBit) {
  for (const bool sharded : {false, true}) {
    RunConfig run = run_of(12, sharded);
    if (run.optimizer.clip_norm) continue;  // clipped by layer
    const auto step = train_ranks(run, 2, 14);
    run.optimizer.update = "per_layer";
    const auto layer = train_ranks(run, 2, 14);
    EXPECT_EQ(layer[0].losses, step[0].losses);
    EXPECT_EQ(layer[0].weights_after, step[0].weights_after);
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_TRUE(layer[k].weights == step[k].weights);
      EXPECT_TRUE(layer[k].states == step[k].states);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, Ranks, ::testing::ValuesIn(kVariants),
                         [](const auto& test) { return test.param.name; });

// The head is the embedding: its gradient is complete with the last layer of backward only.
TEST(RanksOfATiedModel, TrainAsOneRankDoes) {
  ModelConfig model = small_model();
  model.tie_word_embeddings = true;
  const RankSaw one = train_ranks(ranks_run("compact", 6), 1, 20, model)[0];
  for (const bool sharded : {false, true})
    for (const bool by_layer : {false, true}) {
      RunConfig run = ranks_run("compact", by_layer ? 8 : 4);
      run.dist.shard_optimizer = sharded;
      if (by_layer) run.optimizer.update = "per_layer";
      const RankSaw got = train_ranks(run, 3, 20, model)[0];
      for (std::size_t s = 0; s < 20; ++s) ASSERT_NEAR(got.losses[s], one.losses[s], kFp32.loss) << s;
      for (const auto& [name, weights] : one.weights)
        expect_near_largest(got.weights.at(name), weights, kFp32.weights, name);
    }
}

// Gradients that were not sent yet do not go the way of the weights behind them, whatever the bucket holds.
TEST(GradientsAndWeights, GoEachTheirWayWithoutAWaitBetween) {
  for (const std::int64_t bucket : {1, 1 << 20})
    on_ranks(2, [&](Communicator& c) {
      Arena arena(Device::Cpu, 1 << 16);
      Context context(arena);
      c.reserve(context, 1024);
      std::vector<float> memory(16, c.rank() == 0 ? 1.0f : 10.0f);
      Parameter p;
      p.gradient = Tensor(memory.data(), {4, 2}, DType::F32);
      p.weight = Tensor(memory.data() + 8, {4, 2}, DType::F32);
      GradientReduction reduction(c, true, bucket);
      reduction.reduce(context, {&p, 1});
      reduction.gather(context, p);
      reduction.finish(context);
      for (int i = 0; i < 4; ++i) EXPECT_EQ(p.gradient.f32()[c.rank() * 4 + i], 11);
      for (int i = 0; i < 8; ++i) EXPECT_EQ(p.weight.f32()[i], i < 4 ? 1 : 10);
    });
}

// ---- plans -----------------------------------------------------------------------------------------------

// train_ranks holds every rank to its own plan; here, what the plans say of each other.
TEST(PlanOfRanks, TheLastRankNeedsMost) {
  for (const char* optimizer : {"adamw", "compact"})
    for (const int size : {2, 3, 4, 8, 12}) {
      RunConfig run = ranks_run(optimizer, 2);
      run.dist.shard_optimizer = true;
      const RunPlan last = plan_run(run, small_model(), size);
      EXPECT_EQ(last.peak, plan_run(run, small_model(), size, size - 1).peak);
      EXPECT_EQ(last.ranks, size);
      EXPECT_EQ(last.micro_batches, (kSequences / size + 1) / 2);
      for (int rank = 0; rank < size; ++rank)
        EXPECT_LE(plan_run(run, small_model(), size, rank).peak, last.peak) << rank << " of " << size;

      run.dist.shard_optimizer = false;
      const std::size_t states = static_cast<std::size_t>(Category::Optimizer);
      const RunPlan whole = plan_run(run, small_model(), size);
      EXPECT_LT(static_cast<double>(last.at_peak[states]),
                static_cast<double>(whole.at_peak[states]) / size * 1.3 + 64 * 100);
      for (int rank = 0; rank < size; ++rank)
        EXPECT_EQ(plan_run(run, small_model(), size, rank).peak, whole.peak);
    }
}

// Gradients of full rank, and Ĝ [m, n/4] of compressed weights: what a rank sends is what the shapes say.
TEST(PlanOfRanks, BytesSentFollowFromTheShapes) {
  const ModelConfig m = small_model();
  const std::int64_t C = m.hidden_size, F = m.intermediate_size, KV = C / m.heads * m.kv_heads;
  const std::int64_t ends = 2 * m.vocab_size * C + C, norms = 2 * C, o = C * C;
  const std::int64_t by_C = C + 2 * KV + 2 * F, by_F = C;  // rows of q, k, v, gate, up; of down
  const std::int64_t full = ends + m.layers * (norms + o + by_C * C + by_F * F),
                     quarter = ends + m.layers * (norms + o + by_C * C / 4 + by_F * F / 4);
  EXPECT_EQ(full, m.parameters());
  for (const int size : {1, 2, 3, 4}) {
    const double share = static_cast<double>(size - 1) / size;
    const auto sent = [&](const char* optimizer, bool sharded, const char* gradients = "fp32") {
      RunConfig run = ranks_run(optimizer, 2);
      run.dist.shard_optimizer = sharded;
      run.optimizer.gradient_dtype = gradients;
      run.precision = std::string(gradients) == "bf16" ? "bf16" : "fp32";
      return plan_run(run, m, size).wire_bytes;
    };
    const auto loss = 2.0 * 8, norm = 4.0 * size;
    EXPECT_NEAR(sent("adamw", false), share * (2.0 * 4 * static_cast<double>(full) + loss), 1e-6);
    EXPECT_NEAR(sent("compact", false), share * (2.0 * 4 * static_cast<double>(quarter) + loss), 1e-6);
    EXPECT_NEAR(sent("adamw", true), share * (2.0 * 4 * static_cast<double>(full) + loss + norm), 1e-6);
    EXPECT_NEAR(sent("compact", true), share * (4.0 * static_cast<double>(quarter + full) + loss + norm),
                1e-6);
    EXPECT_NEAR(sent("adamw", false, "bf16"), share * (2.0 * 2 * static_cast<double>(full) + loss), 1e-6);
  }
}

}  // namespace
}  // namespace compact::testing
