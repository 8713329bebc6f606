#include "compact/dist/nccl.h"
#include "cuda_emulation/faults.h"
#include "cuda_emulation/fiber_order.h"
#include "mpi_testing.h"

/// Runs on several CUDA devices: emulated ones, whose ranks are threads of this process.
namespace compact::testing {
namespace {

// Other products, another order of sums.
constexpr double kDevices = 1e-3;

class CardsOfOneMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!nccl_is_built() || !is_emulated()) GTEST_SKIP() << "a build without the emulation of cards and NCCL";
    set_machine({.driver = 99000, .devices = 3});
  }
  void TearDown() override {
    if (is_emulated()) set_machine({.driver = 99000});
  }
};

/// Optimizer, and whether it is sharded.
class Cards : public CardsOfOneMachine,
              public ::testing::WithParamInterface<std::tuple<std::string, bool>> {};

TEST_P(Cards, LossesAreThoseOfTheCpu) {
  const auto& [optimizer, sharded] = GetParam();
  Workplace w;
  w.write("model.json", R"({"model_type": "llama", "hidden_act": "silu", "hidden_size": 16,
      "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
      "vocab_size": 64, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "initializer_range": 0.02})");
  nlohmann::json run = {{"batch", {{"tokens_per_step", 96}, {"micro_batch", 1}}},
                        {"optimizer", {{"name", optimizer}}},
                        {"data", {{"val", ""}}},
                        {"dist", {{"shard_optimizer", sharded}, {"bucket_bytes", 4096}}},
                        {"train", {{"steps", 5}, {"checkpoint_every", 0}}}};
  run["compact"] = optimizer == "compact" ? nlohmann::json{{"update_gap", 2}} : nlohmann::json(nullptr);
  w.write_run(run);
  ASSERT_EQ(w.run("train run.json train.out_dir=cpu").code, 0) << contents(w.path("stderr.txt"));
  const std::vector<nlohmann::json> expected = w.events("step", "cpu");
  for (const int ranks : {2, 3}) {
    const std::string out = "cards" + std::to_string(ranks);
    train_in_threads(w, ranks, {"device=cuda", "train.out_dir=" + w.path(out)});
    const std::vector<nlohmann::json> got = w.events("step", out);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i]["loss"].get<double>(), expected[i]["loss"].get<double>(), kDevices) << i;
      EXPECT_GT(got[i]["wire_bytes"].get<double>(), 0);
      EXPECT_EQ(got[i]["wire_bytes"], got[0]["wire_bytes"]) << "once a step, recorded or not";
    }
    const nlohmann::json end = w.events("end", out).at(0);
    EXPECT_EQ(end["planned_peak_bytes"], end["measured_peak_bytes"]);
    EXPECT_EQ(w.checkpoints(out).size(), 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Cards,
                         ::testing::Values(std::tuple("adamw", false), std::tuple("adamw", true),
                                           std::tuple("compact", false), std::tuple("compact", true)));

TEST_F(CardsOfOneMachine, MoreRanksThanCardsAreRefused) {
  const Workplace w;
  auto ranks = make_thread_communicators(4);
  std::vector<std::string> told(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < ranks.size(); ++k)
    threads.emplace_back([&, k] {
      try {
        TrainRequest request;
        request.run = load_run_config(w.path("run.json"),
                                      {"device=cuda", "batch.micro_batch=1", "model=" + w.path("model.json"),
                                       "data.train=" + w.path("train.bin"), "data.val=" + w.path("val.bin"),
                                       "train.out_dir=" + w.path("out")},
                                      4);
        train(request, *ranks[k]);
      } catch (const std::exception& error) {
        told[k] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(told[0].find("4 ranks and 3 CUDA devices"), std::string::npos) << told[0];
  EXPECT_FALSE(std::filesystem::exists(w.path("out")));
}

}  // namespace
}  // namespace compact::testing
