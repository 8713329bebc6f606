#pragma once
#include <omp.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "unit/dist/rank_threads.h"
#include "unit/train/engine_testing.h"

/// Runs of several ranks as threads of the test, each with an engine and an arena of its own.
namespace compact::testing {

inline constexpr std::int64_t kSequences = 24, kLength = 8;  // of a step of all ranks

/// A step of kSequences whose sequences have very different numbers of targets: six of them, which are all
/// that one of four ranks has, have none. Few batches come again and again, so that there is something to
/// learn.
inline StepBatch ragged_batch(std::int64_t step) {
  StepBatch b = random_batch(kSequences, kLength, 61, 900 + static_cast<std::uint32_t>(step % 3));
  std::mt19937 generator(static_cast<std::uint32_t>(step));
  b.targets = 0;
  for (std::int64_t i = 0; i < kSequences; ++i)
    for (std::int64_t t = 0; t < kLength; ++t) {
      auto& label = b.labels[static_cast<std::size_t>(i * kLength + t)];
      const auto masked_of_8 = static_cast<std::uint32_t>(i % 8);  // none to most
      if (i / 6 == step % 4 || generator() % 8 < masked_of_8) label = -100;
      b.targets += label >= 0;
    }
  return b;
}

/// What `rank` of `size` has of a step; `targets` stays that of all.
inline StepBatch share_of(const StepBatch& all, int rank, int size) {
  StepBatch own = all;
  own.sequences = all.sequences / size;
  const std::int64_t T = static_cast<std::int64_t>(all.inputs.size()) / all.sequences, n = own.sequences * T;
  own.inputs.assign(all.inputs.begin() + rank * n, all.inputs.begin() + (rank + 1) * n);
  own.labels.assign(all.labels.begin() + rank * n, all.labels.begin() + (rank + 1) * n);
  return own;
}

/// A run of kSequences a step, as `micro` sequences at a time.
inline RunConfig ranks_run(const std::string& optimizer, std::int64_t micro) {
  RunConfig run = small_run(optimizer);
  run.data.sequence_length = kLength;
  run.batch = {kSequences * kLength, micro};
  run.compact.update_gap = 12;
  run.train.steps = 100;
  return run;
}

/// One rank's engine, in an arena of its planned size. For the rank's thread.
struct RankEngine {
  RankEngine(const RunConfig& run_, const ModelConfig& model, Communicator& communicator_)
      : run((omp_set_num_threads(1), run_)),
        communicator(communicator_),
        plan(plan_run(run, model, communicator.size(), communicator.rank())),
        arena(Device::Cpu, plan.peak),
        engine(arena, run, model, communicator) {
    engine.initialize();
  }
  StepResult step(const StepBatch& of_all, std::int64_t index) {
    return engine.step(share_of(of_all, communicator.rank(), communicator.size()), index, run.optimizer.lr);
  }

  RunConfig run;
  Communicator& communicator;
  RunPlan plan;
  Arena arena;
  Engine engine;
};

/// FNV-1a of all weights: what ranks must have in common after every step.
inline std::uint64_t hash_of_weights(Engine& engine) {
  std::uint64_t hash = 14695981039346656037u;
  for (const Parameter& p : engine.model().parameters()) {
    const auto* bytes = static_cast<const unsigned char*>(p.weight.data);
    for (std::int64_t i = 0; i < p.weight.bytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  }
  return hash;
}

/// What a rank saw of a run.
struct RankSaw {
  std::vector<double> losses, norms;
  std::vector<std::uint64_t> weights_after;  // hashes
  std::map<std::string, std::vector<float>> weights, states;
  bool operator==(const RankSaw&) const = default;
};

/// Trains on `size` ranks. Holds every rank to its plan: bytes of the arena, and bytes sent in a step.
inline std::vector<RankSaw> train_ranks(const RunConfig& run, int size, int steps,
                                        const ModelConfig& model = small_model()) {
  std::vector<RankSaw> saw(static_cast<std::size_t>(size));
  on_ranks(size, [&](Communicator& communicator) {
    RankEngine rank(run, model, communicator);
    RankSaw& mine = saw[static_cast<std::size_t>(communicator.rank())];
    for (std::int64_t s = 0; s < steps; ++s) {
      const double sent = communicator.wire_bytes();
      const StepResult result = rank.step(ragged_batch(s), s);
      EXPECT_NEAR(communicator.wire_bytes() - sent, rank.plan.wire_bytes, 1e-6);
      EXPECT_TRUE(result.applied) << s;
      mine.losses.push_back(result.loss);
      mine.norms.push_back(result.grad_norm);
      mine.weights_after.push_back(hash_of_weights(rank.engine));
    }
    const StepBatch batch =
        share_of(ragged_batch(0), 0, static_cast<int>(kSequences / run.batch.micro_batch));
    rank.engine.evaluate(batch.inputs, batch.labels, batch.sequences);
    EXPECT_EQ(rank.arena.ledger().peak(), rank.plan.peak) << communicator.rank() << " of " << size;
    EXPECT_EQ(rank.arena.ledger().at_peak(), rank.plan.at_peak);
    for (const NamedTensor& t : rank.engine.model().named_weights()) mine.weights[t.name] = floats(t.data);
    for (const NamedTensor& t : rank.engine.optimizer().states()) mine.states[t.name] = floats(t.data);
  });
  for (const RankSaw& other : saw) {
    EXPECT_EQ(other.losses, saw[0].losses);
    EXPECT_EQ(other.norms, saw[0].norms);
    EXPECT_EQ(other.weights_after, saw[0].weights_after) << "ranks have other weights";
  }
  return saw;
}

}  // namespace compact::testing
