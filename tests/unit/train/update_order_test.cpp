#include "compact/core/error.h"
#include "engine_testing.h"

/// Updates in backward (`optimizer.update` "per_layer"), and what happens where a new P is drawn.
namespace compact::testing {
namespace {

struct Variant {
  std::string name, optimizer;
  bool tied = false;
  void (*change)(RunConfig&) = [](RunConfig&) {};
};

const Variant kVariants[] = {
    {"full_rank", "adamw"},
    {"compact", "compact"},
    {"tied", "compact", true},
    {"bf16", "compact", false, [](RunConfig& run) { run.precision = run.optimizer.state_dtype = "bf16"; }},
    {"bf16_master", "adamw", true,
     [](RunConfig& run) {
       run.precision = "bf16";
       run.optimizer.master_weights = true;
       run.optimizer.weight_decay = 0.1;
     }},
    {"transported", "compact", false,
     [](RunConfig& run) {
       run.compact.projection = "orthonormal";
       run.compact.moments_at_reseed = "transport";
     }},
};

class UpdateOrder : public ::testing::TestWithParam<Variant> {
 protected:
  static RunConfig run_of(const std::string& update, const std::string& preset) {
    RunConfig run = small_run(GetParam().optimizer, preset);
    GetParam().change(run);
    run.batch.micro_batch = 8;
    run.optimizer.update = update;
    return run;
  }
  static ModelConfig model() {
    ModelConfig m = small_model();
    m.tie_word_embeddings = GetParam().tied;
    return m;
  }
};

TEST_P(UpdateOrder, PerLayerChangesNoBit) {
  for (const char* preset : {"lean", "block"}) {
    EngineRun all(run_of("per_step", preset), model()), each(run_of("per_layer", preset), model());
    for (int s = 0; s < 5; ++s) {
      const StepBatch batch = random_batch(8, 12, 61, 20 + static_cast<std::uint32_t>(s), 4);
      const StepResult a = all.step(batch, s, 0.01), b = each.step(batch, s, 0.01);
      EXPECT_EQ(a.loss, b.loss) << s;
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-6 * a.grad_norm) << s;
    }
    const auto want = everything(all.engine), got = everything(each.engine);
    for (const auto& [name, values] : want)
      EXPECT_TRUE(same_bits(got.at(name), values)) << preset << " " << name;
  }
}

TEST_P(UpdateOrder, PerLayerHoldsOneLayersGradientsAndKeepsToItsPlan) {
  const std::size_t gradients = static_cast<std::size_t>(Category::Gradients);
  ModelConfig m = model();
  m.layers = 6;
  EngineRun each(run_of("per_layer", "lean"), m);
  const std::int64_t all = plan_run(run_of("per_step", "lean"), m).at_peak[gradients];
  // Embedding and head are of one size, and larger than a block here; a tied one has its own place.
  EXPECT_LT(each.plan.at_peak[gradients],
            GetParam().tied ? 0.7 * static_cast<double>(all) : 0.4 * static_cast<double>(all));
  for (int s = 0; s < 4; ++s) each.step(random_batch(8, 12, 61, 1), s, 0.01);
  each.engine.evaluate(random_batch(8, 12, 61, 1).inputs, random_batch(8, 12, 61, 1).labels, 8);
  EXPECT_EQ(each.arena.ledger().peak(), each.plan.peak);
  EXPECT_EQ(each.arena.ledger().at_peak(), each.plan.at_peak);
}

INSTANTIATE_TEST_SUITE_P(Runs, UpdateOrder, ::testing::ValuesIn(kVariants),
                         [](const auto& test) { return test.param.name; });

TEST(PerLayer, ANonFiniteGradientEndsTheRun) {
  RunConfig run = small_run();
  run.batch.micro_batch = 8;
  run.optimizer.update = "per_layer";
  EngineRun e(run, small_model());
  const StepBatch batch = random_batch(8, 12, 61, 3);
  EXPECT_TRUE(e.step(batch, 0, 0.01).applied);
  e.engine.model().parameters()[3].weight.f32()[5] = NAN;
  EXPECT_THROW(e.step(batch, 1, 0.01), RunError);
  // Nothing to learn from: nothing moves, not even by old moments.
  EngineRun idle(run, small_model());
  idle.step(batch, 0, 0.01);
  const auto before = everything(idle.engine);
  EXPECT_FALSE(idle.step(random_batch(8, 12, 61, 3, 1), 1, 0.01).applied);
  EXPECT_EQ(everything(idle.engine), before);
}

// The state before update `at` is carried to a fresh engine, as a resume does it; both then go on alike,
// whether `at` opens a window, ends one or lies inside.
TEST(Windows, AFreshEngineGoesOnFromTheStates) {
  for (const char* kind : {"gaussian", "orthonormal", "hadamard", "sparse"})
    for (const char* moments : {"keep", "reset", "transport"}) {
      RunConfig run = small_run("compact");
      run.compact.projection = kind;
      run.compact.moments_at_reseed = moments;
      run.compact.update_gap = 3;
      const auto batch = [](int s) { return random_batch(8, 12, 61, 70 + static_cast<std::uint32_t>(s)); };
      // The emulation takes its time: there only the update that opens a window.
      const std::vector<int> places = on_cuda() ? std::vector{3} : std::vector{2, 3, 4};
      for (int at : places) {
        EngineRun first(run, small_model()), second(run, small_model());
        for (int s = 0; s < at; ++s) first.step(batch(s), s, 0.01);
        const auto copy_all = [](const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to) {
          for (std::size_t i = 0; i < from.size(); ++i)
            std::memcpy(to[i].data.data, from[i].data.data, static_cast<std::size_t>(from[i].data.bytes()));
        };
        copy_all(first.engine.model().named_weights(), second.engine.model().named_weights());
        copy_all(first.engine.optimizer().states(), second.engine.optimizer().states());
        second.engine.set_exponents(first.engine.exponent(), first.engine.window_start());
        for (int s = at; s < (on_cuda() ? 5 : 8); ++s)
          EXPECT_EQ(first.step(batch(s), s, 0.01).loss, second.step(batch(s), s, 0.01).loss)
              << kind << moments << at;
        EXPECT_EQ(everything(first.engine), everything(second.engine)) << kind << " " << moments << " " << at;
      }
    }
}

// keep, reset and transport agree until the first new P and part there; V is untouched by a transport.
TEST(Windows, MomentsAtANewProjection) {
  std::map<std::string, std::map<std::string, std::vector<float>>> states;
  for (const char* moments : {"keep", "reset", "transport"}) {
    RunConfig run = small_run("compact");
    run.compact.moments_at_reseed = moments;
    run.compact.update_gap = 2;
    EngineRun e(run, small_model());
    const StepBatch batch = random_batch(8, 12, 61, 3);
    for (int s = 0; s < 2; ++s) e.step(batch, s, 0.01);
    EXPECT_EQ(e.engine.window_start(), 0);
    // A step without targets opens the window and moves nothing else.
    e.step(random_batch(8, 12, 61, 3, 1), 2, 0.01);
    EXPECT_EQ(e.engine.window_start(), 2);
    states[moments] = everything(e.engine);
  }
  const std::string compressed = "model.layers.0.mlp.up_proj.weight",
                    whole = "model.layers.0.self_attn.o_proj.weight";
  const auto zeros = [](const std::vector<float>& v) {
    return std::all_of(v.begin(), v.end(), [](float x) { return x == 0; });
  };
  auto &keep = states["keep"], &reset = states["reset"], &transport = states["transport"];
  for (const char* state : {".m", ".v"}) {
    EXPECT_FALSE(zeros(keep[compressed + state]));
    EXPECT_TRUE(zeros(reset[compressed + state]));
    EXPECT_EQ(keep[whole + state], reset[whole + state]);
    EXPECT_EQ(keep[whole + state], transport[whole + state]);
  }
  EXPECT_NE(keep[compressed + ".m"], transport[compressed + ".m"]);
  EXPECT_EQ(keep[compressed + ".v"], transport[compressed + ".v"]);
}

}  // namespace
}  // namespace compact::testing
