#include "compact/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "compact/core/bf16.h"
#include "compact/kernels/adam.h"
#include "compact/kernels/elementwise.h"

/// Optimizers on a few small parameters: what they keep, under which names, and what a new P does to it.
namespace compact {
namespace {

constexpr std::int64_t kGap = 2;  // updates that share one P

// A gate that is open and halves the gradients.
constexpr float kHalved[3] = {0.5f, 1, 0};

/// Five parameters as a model has them: a norm [6], o_proj [8, 6], q and k together [8 + 4, 6] compressed to
/// 3, down [5, 7] compressed to 4, and lm_head [9, 6].
struct Setting {
  explicit Setting(const OptimizerOptions& options_, DType weights = DType::F32, Device device = Device::Cpu)
      : options(options_),
        arena(device, device == Device::Plan ? Arena::kUnlimited : std::int64_t{1} << 20),
        optimizer(make_optimizer(options_)) {
    add({{"norm", Role::Norm, 0, 1}}, {6}, {6}, weights);
    add({{"o", Role::O, 0, 8}}, {8, 6}, {8, 6}, weights);
    add({{"q", Role::Q, 0, 8}, {"k", Role::K, 8, 4}}, {12, 6}, {12, 3}, weights);
    add({{"down", Role::Down, 0, 5}}, {5, 7}, {5, 4}, weights);
    add({{"head", Role::Head, 0, 9}}, {9, 6}, {9, 6}, weights);
    optimizer->allocate(context, parameters);
    optimizer->adopt_weights(context, parameters);
  }

  void add(const std::vector<Member>& members, Shape weight, Shape gradient, DType dtype) {
    Parameter p;
    p.members = members;
    p.id = static_cast<std::uint32_t>(2 * parameters.size());
    p.weight = arena.persistent("w", weight, dtype, Category::Weights);
    const bool compressed = options.name == "compact" && !(gradient == weight);
    p.gradient = arena.persistent("g", compressed ? gradient : weight, DType::F32, Category::Gradients);
    if (compressed) {
      Projection projection{ProjectionKind::Gaussian, 42, p.id, 0, weight.last(), gradient.last()};
      p.compression = Compression{projection, kGap};
    }
    randomize(p.weight, 100 + p.id);
    parameters.push_back(p);
  }

  /// Values that bf16 has, so that weights of both types begin alike.
  static void randomize(const Tensor& t, std::uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; t.data != nullptr && i < t.elements(); ++i) {
      const Bf16 x = nearest_bf16(normal(generator));
      if (t.dtype == DType::BF16)
        t.as<Bf16>()[i] = x;
      else
        t.f32()[i] = to_float(x);
    }
  }

  /// Update `index` of all parameters with gradients that depend on the index alone; a new P is told first.
  void update(std::int64_t index, std::int64_t exponent, std::int64_t window_exponent) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& p = parameters[i];
      randomize(p.gradient, static_cast<std::uint32_t>(1000 * (index + 1) + p.id));
      if (p.compression && index > 0 && index % kGap == 0)
        optimizer->reseed(context, p, i, p.compression->at_update(index - 1),
                          p.compression->at_update(index));
      optimizer->update(context, p, i, {index, exponent, window_exponent, 0.1, kHalved});
    }
  }
  void update(std::int64_t index) { update(index, index + 1, index % kGap + 1); }

  std::map<std::string, Tensor> states() const {
    std::map<std::string, Tensor> all;
    for (const NamedTensor& t : optimizer->states()) all[t.name] = t.data;
    return all;
  }

  OptimizerOptions options;
  Arena arena;
  Context context{arena};
  std::unique_ptr<Optimizer> optimizer;
  std::vector<Parameter> parameters;
};

OptimizerOptions options(const std::string& name, AtReseed at_reseed = AtReseed::Keep) {
  OptimizerOptions o;
  o.name = name;
  o.weight_decay = 0.01;
  o.seed = 42;
  o.at_reseed = at_reseed;
  return o;
}

std::vector<float> values(const Tensor& t) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < t.elements(); ++i)
    out.push_back(t.dtype == DType::BF16 ? to_float(t.as<Bf16>()[i]) : t.f32()[i]);
  return out;
}

void expect_same(const Tensor& a, const Tensor& b, const std::string& what) {
  const std::vector<float> x = values(a), y = values(b);
  EXPECT_TRUE(x.size() == y.size() && std::memcmp(x.data(), y.data(), 4 * x.size()) == 0) << what;
}

void expect_differ(const Tensor& a, const Tensor& b, const std::string& what) {
  EXPECT_NE(values(a), values(b)) << what;
}

std::int64_t bytes_of(const Setting& s, Category category) {
  return s.arena.ledger().at_peak()[static_cast<std::size_t>(category)];
}

TEST(Optimizer, StatesHaveTheShapesOfTheirGradients) {
  for (const bool masters : {false, true})
    for (const bool per_channel : {false, true}) {
      OptimizerOptions o = options("compact");
      o.state_dtype = DType::BF16;
      o.master_weights = masters;
      o.per_channel = per_channel;
      const Setting s(o, DType::BF16);
      const auto states = s.states();
      EXPECT_EQ(states.size(), masters ? 18u : 12u);
      const auto expect = [&](const std::string& name, Shape gradient, Shape v, Shape weight) {
        EXPECT_EQ(states.at(name + ".m").shape.text(), gradient.text());
        EXPECT_EQ(states.at(name + ".v").shape.text(), v.text());
        EXPECT_EQ(states.at(name + ".m").dtype, DType::BF16);
        EXPECT_EQ(states.at(name + ".v").dtype, DType::BF16);
        for (const float x : values(states.at(name + ".m"))) EXPECT_EQ(x, 0.0f);
        for (const float x : values(states.at(name + ".v"))) EXPECT_EQ(x, 0.0f);
        ASSERT_EQ(states.contains(name + ".master"), masters);
        if (!masters) return;
        EXPECT_EQ(states.at(name + ".master").shape.text(), weight.text());
        EXPECT_EQ(states.at(name + ".master").dtype, DType::F32);
      };
      expect("norm", {6}, {6}, {6});
      expect("o", {8, 6}, {8, 6}, {8, 6});
      expect("q", {8, 3}, per_channel ? Shape{8} : Shape{8, 3}, {8, 6});
      expect("k", {4, 3}, per_channel ? Shape{4} : Shape{4, 3}, {4, 6});
      expect("down", {5, 4}, per_channel ? Shape{5} : Shape{5, 4}, {5, 7});
      expect("head", {9, 6}, {9, 6}, {9, 6});
      // k's rows begin where q's end, in every state.
      for (const char* state : {".m", ".v"}) {
        const Tensor q = states.at(std::string("q") + state), k = states.at(std::string("k") + state);
        EXPECT_EQ(k.as<Bf16>(), q.as<Bf16>() + q.elements());
      }
      EXPECT_EQ(bytes_of(s, Category::Master) > 0, masters);
      const Setting plan(o, DType::BF16, Device::Plan);
      EXPECT_EQ(plan.arena.ledger().at_peak(), s.arena.ledger().at_peak());
    }
}

TEST(Optimizer, AdamwKeepsNothingByChannel) {
  OptimizerOptions o = options("adamw");
  o.per_channel = true;
  EXPECT_EQ(Setting(o).states().at("q.v").shape.text(), "[8, 6]");
}

TEST(Optimizer, MastersBeginAsTheWeightsAndWeightsStayTheirNearest) {
  for (const char* name : {"adamw", "compact"}) {
    OptimizerOptions o = options(name);
    o.master_weights = true;
    Setting s(o, DType::BF16);
    const auto states = s.states();
    expect_same(s.parameters[1].weight, states.at("o.master"), name);
    expect_same(s.parameters[0].weight, states.at("norm.master"), name);
    for (std::int64_t t = 0; t < 5; ++t) s.update(t);
    for (const Parameter& p : s.parameters)
      for (const Member& member : p.members) {
        const Tensor rows =
            p.members.size() == 1 ? p.weight : p.weight.row_range(member.first_row, member.rows);
        const std::vector<float> master = values(states.at(member.name + ".master")), w = values(rows);
        for (std::size_t i = 0; i < w.size(); ++i) EXPECT_EQ(w[i], to_float(nearest_bf16(master[i])));
      }
  }
}

TEST(Optimizer, MastersOfBf16WeightsAreTheFloatRun) {
  for (const char* name : {"adamw", "compact"}) {
    OptimizerOptions with = options(name);
    with.master_weights = true;
    Setting a(with, DType::BF16), b(options(name), DType::F32);
    const auto states = a.states();
    for (std::int64_t t = 0; t < 3; ++t) {
      a.update(t);
      b.update(t);
    }
    expect_same(states.at("o.master"), b.parameters[1].weight, name);
    expect_same(states.at("q.master"), b.parameters[2].weight.row_range(0, 8), name);
    expect_same(states.at("k.master"), b.parameters[2].weight.row_range(8, 4), name);
    expect_same(states.at("down.master"), b.parameters[3].weight, name);
  }
}

TEST(Optimizer, RoundsByParameterSeedAndUpdate) {
  for (const char* name : {"adamw", "compact"}) {
    const auto run = [&](std::uint64_t seed, std::int64_t index, std::uint32_t id_shift, bool stochastic) {
      OptimizerOptions o = options(name);
      o.seed = seed;
      o.stochastic_rounding = stochastic;
      o.state_dtype = DType::BF16;
      auto s = std::make_unique<Setting>(o, DType::BF16);
      // The projection keeps its id: only the rounding's may change.
      for (Parameter& p : s->parameters) p.id += id_shift;
      for (std::size_t i = 0; i < s->parameters.size(); ++i) {
        Setting::randomize(s->parameters[i].gradient, 7);
        s->optimizer->update(s->context, s->parameters[i], i, {index, 1, 1, 0.1});
      }
      return s;
    };
    const auto first = run(42, 0, 0, true), again = run(42, 0, 0, true), other_seed = run(43, 0, 0, true),
               other_update = run(42, 1, 0, true), other_id = run(42, 0, 1, true),
               nearest = run(42, 0, 0, false);
    for (std::size_t i : {1u, 2u, 3u, 4u}) {
      const std::string what = std::string(name) + " " + first->parameters[i].members[0].name;
      const auto w = [&](const auto& s) { return s->parameters[i].weight; };
      expect_same(w(first), w(again), what);
      expect_differ(w(first), w(other_seed), what);
      expect_differ(w(first), w(other_update), what);
      expect_differ(w(first), w(other_id), what);
      expect_differ(w(first), w(nearest), what);
    }
  }
}

TEST(Optimizer, KeepLeavesTheMomentsAlone) {
  Setting s(options("compact"));
  s.update(0);
  const auto states = s.states();
  const std::vector<float> m = values(states.at("q.m")), v = values(states.at("q.v"));
  const Parameter& p = s.parameters[2];
  s.optimizer->reseed(s.context, p, 2, p.compression->at_update(0), p.compression->at_update(2));
  EXPECT_EQ(values(states.at("q.m")), m);
  EXPECT_EQ(values(states.at("q.v")), v);
}

TEST(Optimizer, ResetBeginsAnewForCompressedWeightsOnly) {
  Setting s(options("compact", AtReseed::Reset)), kept(options("compact"));
  for (std::int64_t t = 0; t < kGap; ++t) {
    s.update(t);
    kept.update(t);
  }
  // What a first update does to the same weights in that window.
  Setting fresh(options("compact"));
  for (std::size_t i = 0; i < s.parameters.size(); ++i)
    copy(s.context, s.parameters[i].weight, fresh.parameters[i].weight);
  s.update(kGap);
  kept.update(kGap);
  for (std::size_t i = 0; i < s.parameters.size(); ++i) {
    const Parameter& p = fresh.parameters[i];
    Setting::randomize(p.gradient, static_cast<std::uint32_t>(1000 * (kGap + 1) + p.id));
    fresh.optimizer->update(fresh.context, p, i, {kGap, 1, 1, 0.1, kHalved});
    const std::string& name = p.members[0].name;
    const Setting& same = p.compression ? fresh : kept;
    const Setting& other = p.compression ? kept : fresh;
    expect_same(s.parameters[i].weight, same.parameters[i].weight, name);
    expect_differ(s.parameters[i].weight, other.parameters[i].weight, name);
    for (const char* state : {".m", ".v"})
      expect_same(s.states().at(name + state), same.states().at(name + state), name + state);
  }
}

TEST(Optimizer, TransportCarriesTheFirstMomentAndKeepsTheSecond) {
  for (const bool per_channel : {false, true}) {
    OptimizerOptions o = options("compact", AtReseed::Transport);
    o.transport_scale = 0.75;
    o.per_channel = per_channel;
    Setting s(o);
    s.update(0);
    const auto states = s.states();
    const std::vector<float> before = values(states.at("down.m")), v = values(states.at("down.v"));
    const Parameter& p = s.parameters[3];
    const Projection last = p.compression->at_update(0), next = p.compression->at_update(2);
    const Tensor P = s.arena.persistent("P", {7, 4}, DType::F32, Category::Weights);
    const Tensor Q = s.arena.persistent("Q", {7, 4}, DType::F32, Category::Weights);
    projection_rows(s.context, last, 0, P);
    projection_rows(s.context, next, 0, Q);
    s.optimizer->reseed(s.context, p, 3, last, next);
    for (std::int64_t row = 0; row < 5; ++row)
      for (std::int64_t j = 0; j < 4; ++j) {
        double want = 0;
        for (std::int64_t i = 0; i < 7; ++i)
          for (std::int64_t k = 0; k < 4; ++k)
            want += 0.75 * static_cast<double>(before[static_cast<std::size_t>(row * 4 + k)]) *
                    static_cast<double>(P.f32()[i * 4 + k]) * static_cast<double>(Q.f32()[i * 4 + j]);
        EXPECT_NEAR(static_cast<double>(states.at("down.m").f32()[row * 4 + j]), want, 1e-5);
      }
    EXPECT_EQ(values(states.at("down.v")), v);
  }
}

TEST(Optimizer, PerChannelIsProjectedAdamWithOneMomentForEachRow) {
  OptimizerOptions o = options("compact");
  o.per_channel = true;
  Setting s(o), plain(options("compact"));
  const Parameter& p = plain.parameters[2];
  const Tensor m = plain.arena.persistent("m", {12, 3}, DType::F32, Category::Optimizer);
  const Tensor v = plain.arena.persistent("v", {12}, DType::F32, Category::Optimizer);
  zero(plain.context, m);
  zero(plain.context, v);
  for (std::int64_t t = 0; t < 3; ++t) {
    s.update(t);
    Setting::randomize(p.gradient, static_cast<std::uint32_t>(1000 * (t + 1) + p.id));
    AdamStep step = adam_step(0.9, 0.999, 1e-6, t + 1);
    step.lr = static_cast<float>(0.1 * 0.25);
    step.decay = static_cast<float>(0.1 * 0.01);
    step.gradient_scale = 0.5f;
    projected_adam(plain.context, step, {}, p.compression->at_update(t), p.weight, p.gradient, m, v, {});
  }
  expect_same(s.parameters[2].weight, p.weight, "weight");
  expect_same(s.states().at("k.m"), m.row_range(8, 4), "m");
  expect_same(s.states().at("k.v"), v.slice(8, 4), "v");
}

}  // namespace
}  // namespace compact
