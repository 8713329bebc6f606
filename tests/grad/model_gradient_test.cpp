#include "unit/train/engine_testing.h"

/// The whole small model against finite differences: the loss moves along a random direction of every weight
/// as its gradient says. Compressed gradients are checked against the full ones: Ĝ = G P to rounding.
namespace compact::testing {
namespace {

double loss_of(EngineRun& e, const StepBatch& batch) {
  double sum = 0;
  std::int64_t tokens = 0;
  const std::int64_t B = e.run.batch.micro_batch, T = e.run.data.sequence_length;
  for (std::int64_t at = 0; at < batch.sequences; at += B) {
    const auto part = [&](const std::vector<std::int32_t>& v) {
      return std::vector<std::int32_t>(v.begin() + at * T, v.begin() + (at + B) * T);
    };
    const LossSum s = e.engine.evaluate(part(batch.inputs), part(batch.labels), B);
    sum += s.sum;
    tokens += s.tokens;
  }
  return sum / static_cast<double>(tokens);
}

// Weights as of a trained model: with fresh ones many gradients are too small to tell from rounding.
void liven(EngineRun& e) {
  std::mt19937 generator(5);
  std::normal_distribution<float> normal;
  for (const NamedTensor& t : e.engine.model().named_weights())
    for (std::int64_t i = 0; i < t.data.elements(); ++i)
      t.data.f32()[i] =
          t.name.find("norm") != std::string::npos ? 1 + 0.2f * normal(generator) : 0.25f * normal(generator);
}

class ModelGradient : public ::testing::TestWithParam<std::string> {};

TEST_P(ModelGradient, FiniteDifferences) {
  for (std::int64_t kv_heads : {4, 2, 1}) {
    EngineRun e(small_run("adamw", GetParam()), small_model(kv_heads));
    liven(e);
    const StepBatch batch = random_batch(8, 12, 61, 9, 5);
    e.step(batch, 0, 0.0);
    const auto gradient = gradients(e.engine);
    std::uint32_t seed = 1;
    for (const NamedTensor& t : e.engine.model().named_weights()) {
      std::mt19937 generator(seed++);
      std::normal_distribution<float> normal;
      const std::vector<float> at = floats(t.data), &g = gradient.at(t.name);
      // A direction that has a good part of the gradient in it, so that the difference stands out of the
      // rounding.
      double size = 0;
      for (float x : g) size += static_cast<double>(x) * static_cast<double>(x);
      size = std::sqrt(size);
      std::vector<float> direction(at.size());
      double want = 0;
      for (std::size_t i = 0; i < at.size(); ++i)
        direction[i] = static_cast<float>(static_cast<double>(g[i]) / size +
                                          static_cast<double>(normal(generator)) /
                                              std::sqrt(static_cast<double>(at.size())));
      const float h = 0.005f;
      const auto shifted = [&](float by) {
        for (std::size_t i = 0; i < at.size(); ++i) t.data.f32()[i] = at[i] + by * direction[i];
        return loss_of(e, batch);
      };
      for (std::size_t i = 0; i < at.size(); ++i)
        want += static_cast<double>(g[i]) * static_cast<double>(direction[i]);
      const double got = (shifted(h) - shifted(-h)) / (2 * static_cast<double>(h));
      shifted(0);
      EXPECT_NEAR(got, want, 1e-2 * std::abs(want) + 1e-5) << t.name << ", kv heads " << kv_heads;
    }
  }
}

TEST_P(ModelGradient, CompressedGradientsAreFullOnesTimesP) {
  for (const char* sharing : {"per_input", "per_weight"}) {
    RunConfig run = small_run("compact", GetParam());
    run.compact.sharing = sharing;
    run.compact.update_gap = 3;
    EngineRun compressed(run, small_model()), full(small_run("adamw", GetParam()), small_model());
    liven(compressed);
    liven(full);
    const StepBatch batch = random_batch(8, 12, 61, 9, 5);
    const std::int64_t update = 7;  // window 2
    compressed.step(batch, update, 0.0);
    full.step(batch, update, 0.0);
    const auto exact = gradients(full.engine);
    Arena arena(Device::Cpu, 1 << 20);
    Context context(arena);
    // Adam has turned Ĝ into a step, so the first moment tells what it was: m = 0.1 Ĝ after one update.
    std::map<std::string, std::vector<float>> moments = everything(compressed.engine);
    for (const Parameter& p : compressed.engine.model().parameters()) {
      if (!p.compression) continue;
      const Projection P = p.compression->at_update(update);
      EXPECT_EQ(P.window, 2u);
      ScratchScope scope(arena);
      const Tensor rows = arena.scratch("P", {P.n, P.r}, DType::F32);
      projection_rows(context, P, 0, rows);
      for (const Member& m : p.members) {
        const std::vector<float>& G = exact.at(m.name);  // [rows, n]
        std::vector<float> want(static_cast<std::size_t>(m.rows * P.r));
        for (std::int64_t i = 0; i < m.rows; ++i)
          for (std::int64_t j = 0; j < P.r; ++j) {
            double sum = 0;
            for (std::int64_t k = 0; k < P.n; ++k)
              sum += static_cast<double>(G[static_cast<std::size_t>(i * P.n + k)]) *
                     static_cast<double>(rows.f32()[k * P.r + j]);
            want[static_cast<std::size_t>(i * P.r + j)] = static_cast<float>(0.1 * sum);
          }
        expect_near_largest(moments[m.name + ".m"], want, 1e-4, m.name + " " + sharing);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllPresets, ModelGradient, ::testing::Values("paper", "lean", "tight", "block"));

}  // namespace
}  // namespace compact::testing
