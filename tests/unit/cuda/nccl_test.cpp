#include "compact/dist/nccl.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "compact/core/bf16.h"
#include "compact/core/error.h"
#include "compact/cuda/device.h"
#include "compact/cuda/queue.h"
#include "compact/dist/rows.h"
#include "compact/memory/context.h"
#include "cuda_emulation/faults.h"
#include "cuda_emulation/fiber_order.h"
#include "kernels/elementwise_cuda.h"

/// Ranks as threads, each with a queue on a device of its own, that send by NCCL or its stand-in.
namespace compact {
namespace {

using testing::RankFault;

constexpr int kDriver = 99000;  // newer than any runtime
constexpr cuda::QueueOptions kGraph{}, kNoGraph{.graph = false}, kChecked{.sync_checks = true};

/// What a rank has. Members go in the order in which a run ends.
struct Rank {
  Rank(std::unique_ptr<Communicator> host, const cuda::QueueOptions& options, double patience)
      : queue(options), ranks(make_nccl_communicator(std::move(host), queue, {patience, nullptr})) {}

  int rank() const { return ranks->rank(); }
  int size() const { return ranks->size(); }
  Tensor make(Shape shape, DType dtype = DType::F32) {
    return arena.persistent("t", shape, dtype, Category::Weights);
  }
  Tensor filled(std::int64_t n, float value) {
    const Tensor t = make({n});
    cuda::fill(queue, t, value);
    return t;
  }
  float first(const Tensor& t) {
    float value = 0;
    queue.download(t.data, &value, sizeof(value));
    return value;
  }
  void all_reduce(const Tensor& t) { ranks->all_reduce(context, {&t, 1}); }
  void reduce(const Tensor& t) { ranks->reduce(context, {&t, 1}); }
  void gather(const Tensor& t) { ranks->gather(context, {&t, 1}); }
  void wait() { ranks->wait(context); }

  cuda::Queue queue;
  Arena arena{Device::Cuda, 1 << 20};
  Context context{arena, &queue};
  std::unique_ptr<Communicator> ranks;
};

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!nccl_is_built()) GTEST_SKIP() << "a build without NCCL";
    cards_ = 4;
    if (testing::is_emulated())
      testing::set_machine({.driver = kDriver, .devices = cards_});
    else
      try {
        cards_ = cuda::device_count();
      } catch (const RunError&) {
        cards_ = 0;
      }
    if (cards_ < 2) GTEST_SKIP() << "fewer than two CUDA devices";
    cuda::allocate_managed(true);
  }
  void TearDown() override {
    testing::set_side_first(false);
    for (int rank = 0; rank < 4; ++rank) testing::set_rank_fault(rank, RankFault::None);
    if (testing::is_emulated()) testing::set_machine({.driver = kDriver});
  }

  /// Runs `work` on ranks that are threads; what each has thrown, or "".
  std::vector<std::string> run(int size, const cuda::QueueOptions& options,
                               const std::function<void(Rank&)>& work, double patience = 60) {
    std::vector<std::unique_ptr<Communicator>> hosts = make_thread_communicators(size);
    std::vector<std::string> errors(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        const auto at = static_cast<std::size_t>(rank);
        try {
          cuda::QueueOptions own = options;
          own.device = rank;
          Rank r(std::move(hosts[at]), own, patience);
          work(r);
        } catch (const std::exception& error) {
          errors[at] = error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return errors;
  }
  void run_well(int size, const cuda::QueueOptions& options, const std::function<void(Rank&)>& work) {
    for (const std::string& error : run(size, options, work)) EXPECT_EQ(error, "");
  }
  /// In both orders of the emulation.
  void run_in_any_order(int size, const cuda::QueueOptions& options, const std::function<void(Rank&)>& work) {
    for (const bool first : {false, true}) {
      testing::set_side_first(first);
      run_well(size, options, work);
    }
    testing::set_side_first(false);
  }

  int cards_ = 0;
};

double get(const Tensor& t, std::int64_t i) {
  if (t.dtype == DType::F64) return t.as<double>()[i];
  return static_cast<double>(t.dtype == DType::BF16 ? to_float(t.as<Bf16>()[i]) : t.f32()[i]);
}
void set(const Tensor& t, std::int64_t i, double value) {
  if (t.dtype == DType::F64)
    t.as<double>()[i] = value;
  else if (t.dtype == DType::BF16)
    put(t.as<Bf16>()[i], static_cast<float>(value));
  else
    t.f32()[i] = static_cast<float>(value);
}
/// Element i of tensor `number` on `rank`: whole, so that any order of a sum gives the same.
double value_of(int number, int rank, std::int64_t i) {
  return static_cast<double>((i * 7 + rank * 13 + number * 5) % 31 - 15);
}

TEST_F(Nccl, AgreesWithPlainLoops) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> shapes = {{1, 5}, {1, 1},  {2, 3},  {3, 7}, {4, 4},
                                                                     {5, 1}, {7, 33}, {12, 2}, {64, 9}};
  for (int size = 1; size <= cards_ && size <= 4; ++size)
    for (const cuda::QueueOptions& options : {kNoGraph, kChecked})
      run_well(size, options, [&](Rank& r) {
        for (const char* what : {"all_reduce", "reduce", "gather"}) {
          std::vector<Tensor> tensors;
          for (const DType dtype : {DType::F32, DType::BF16, DType::F64})
            for (const auto& [rows, cols] : shapes) tensors.push_back(r.make({rows, cols}, dtype));
          for (std::size_t k = 0; k < tensors.size(); ++k)
            for (std::int64_t i = 0; i < tensors[k].elements(); ++i)
              set(tensors[k], i, value_of(static_cast<int>(k), r.rank(), i));
          const std::string call = what;
          if (call == "all_reduce") r.ranks->all_reduce(r.context, tensors);
          if (call == "reduce") r.ranks->reduce(r.context, tensors);
          if (call == "gather") r.ranks->gather(r.context, tensors);
          r.wait();
          r.queue.wait();
          for (std::size_t k = 0; k < tensors.size(); ++k) {
            const Tensor& t = tensors[k];
            for (int owner = 0; owner < size; ++owner) {
              if (call == "reduce" && owner != r.rank()) continue;
              const Rows rows = rows_of(t, owner, size);
              for (std::int64_t i = rows.first * t.cols(); i < (rows.first + rows.count) * t.cols(); ++i) {
                double sum = 0;
                for (int rank = 0; rank < size; ++rank) sum += value_of(static_cast<int>(k), rank, i);
                const double want = call == "gather" ? value_of(static_cast<int>(k), owner, i) : sum;
                ASSERT_EQ(get(t, i), want) << what << " of " << t.shape.text() << " on rank " << r.rank()
                                           << " of " << size << ", element " << i;
              }
            }
          }
        }
      });
}

TEST_F(Nccl, OneRankIsItsHost) {
  cuda::Queue queue(kGraph);
  std::unique_ptr<Communicator> host = make_local_communicator();
  const Communicator* before = host.get();
  EXPECT_EQ(make_nccl_communicator(std::move(host), queue).get(), before);
}

TEST_F(Nccl, TalksThroughTheHost) {
  run_well(2, kGraph, [](Rank& r) {
    double value = r.rank() + 1;
    r.ranks->sum({&value, 1});
    EXPECT_EQ(value, 3);
    EXPECT_EQ(r.ranks->gather_texts(std::to_string(r.rank()))[1], "1");
    const std::byte byte{7};
    EXPECT_EQ(r.ranks->collect({&byte, 1}).size(), r.rank() == 0 ? 2u : 0u);
    EXPECT_EQ(r.ranks->place().local_size, 2);
  });
}

// What is queued before a call is what it sends; what is queued behind the wait sees its result; what is
// between does not wait.
TEST_F(Nccl, KeepsItsPlaceAmongKernels) {
  for (const cuda::QueueOptions& options : {kNoGraph, kChecked})
    run_in_any_order(2, options, [](Rank& r) {
      const Tensor x = r.filled(1000, 0), y = r.filled(1000, 0), z = r.filled(1000, 5);
      for (int i = 1; i <= 3; ++i) {
        cuda::fill(r.queue, x, static_cast<float>(i * (r.rank() + 1)));  // the sum: 3 i
        r.all_reduce(x);
        cuda::add(r.queue, z, z, z);  // beside it
        cuda::fill(r.queue, y, static_cast<float>(10 * i * (r.rank() + 1)));
        r.all_reduce(y);
        r.wait();
        cuda::add(r.queue, x, y, y);  // 33 i
        EXPECT_EQ(r.first(y), static_cast<float>(33 * i));
      }
      EXPECT_EQ(r.first(z), 40);
    });
}

// The host's wait is for everything, joined or not.
TEST_F(Nccl, TheWaitOfTheHostIncludesIt) {
  run_in_any_order(2, kNoGraph, [](Rank& r) {
    const Tensor x = r.filled(5, static_cast<float>(r.rank() + 1));
    r.all_reduce(x);
    r.queue.wait();
    EXPECT_EQ(x.f32()[4], 3);
  });
}

TEST_F(Nccl, AStepIsRecordedOnceWithItsCalls) {
  for (int size = 2; size <= cards_ && size <= 4; ++size)
    for (const cuda::QueueOptions& options : {kGraph, kNoGraph, kChecked})
      run_in_any_order(size, options, [&](Rank& r) {
        // As a step of training: gradients are reduced beside others, the own rows updated and gathered.
        const Tensor w = r.filled(12, 1), g = r.make({12}), h = r.make({6, 7});
        const Tensor weights = w.reshaped({12, 1}), gradients = g.reshaped({12, 1});
        const Tensor own = rows_in(weights, rows_of(weights, r.rank(), size));
        const Tensor own_g = rows_in(gradients, rows_of(gradients, r.rank(), size));
        float expected = 1;
        r.gather(weights);  // before the steps, and not waited for
        const double before = r.ranks->wire_bytes();
        for (int i = 0; i < 6; ++i) {
          const float value = static_cast<float>((i + 1) * (r.rank() + 1));
          r.queue.step([&] {
            const Tensor live(const_cast<float*>(r.queue.live(value)), {1}, DType::F32);
            for (std::int64_t k = 0; k < 12; ++k) cuda::copy(r.queue, live, g.slice(k, 1));
            r.reduce(gradients);
            cuda::fill(r.queue, h, static_cast<float>(r.rank()));
            r.all_reduce(h);
            r.wait();
            cuda::add(r.queue, own, own_g, own);
            r.gather(weights);
            r.wait();
          });
          const float ranks = static_cast<float>(size);
          expected += static_cast<float>(i + 1) * ranks * (ranks + 1) / 2;
          r.queue.wait();
          for (std::int64_t k = 0; k < 12; ++k) EXPECT_EQ(w.f32()[k], expected) << "step " << i;
          EXPECT_EQ(h.f32()[41], ranks * (ranks - 1) / 2);
          EXPECT_EQ(r.queue.graphs_recorded(), options.graph && !options.sync_checks && i > 0 ? 1 : 0);
          // 12 elements reduced and gathered, 42 both ways, once a step however often it is run through.
          EXPECT_DOUBLE_EQ(r.ranks->wire_bytes() - before, (i + 1) * 4.0 * (24 + 84) * (size - 1) / size);
        }
      });
}

TEST_F(Nccl, AStepComesAfterWhatWasSentBeforeIt) {
  for (const cuda::QueueOptions& options : {kGraph, kNoGraph})
    run_in_any_order(2, options, [](Rank& r) {
      const Tensor x = r.make({50}), y = r.make({50});
      for (int i = 1; i <= 4; ++i) {
        cuda::fill(r.queue, x, static_cast<float>(i * (r.rank() + 1)));  // the sum: 3 i
        r.all_reduce(x);
        r.queue.step([&] {
          r.wait();
          cuda::add(r.queue, x, x, y);
        });
        EXPECT_EQ(r.first(y), static_cast<float>(6 * i));
      }
    });
}

TEST_F(Nccl, APlanCountsTheBytesOfARun) {
  run_well(2, kGraph, [](Rank& r) {
    Arena arena(Device::Plan, Arena::kUnlimited, Device::Cuda);
    Context plan(arena);
    const Tensor t = arena.persistent("t", {3, 5}, DType::BF16, Category::Weights);
    r.ranks->reserve(plan, 1 << 20);
    r.ranks->reduce(plan, {&t, 1});
    r.ranks->gather(plan, {&t, 1});
    r.ranks->all_reduce(plan, {&t, 1});
    r.ranks->wait(plan);
    EXPECT_EQ(r.ranks->wire_bytes(), 4 * 30 / 2);
  });
}

TEST_F(Nccl, AStepThatDoesNotWaitIsABug) {
  const auto errors = run(2, kGraph, [](Rank& r) {
    const Tensor x = r.filled(4, 1);
    r.queue.step([&] { r.all_reduce(x); });
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("nothing waits for"), std::string::npos) << error;
}

TEST_F(Nccl, OtherCallsMakeAnotherGraph) {
  run_well(2, kGraph, [](Rank& r) {
    const Tensor x = r.filled(8, 1);
    for (int i = 0; i < 6; ++i) {
      r.queue.step([&] {
        cuda::fill(r.queue, x, 1);
        if (i < 3)
          r.all_reduce(x);
        else
          r.reduce(x.reshaped({8, 1}));
        r.wait();
      });
      r.queue.wait();
      EXPECT_EQ(x.f32()[r.rank() * 4], 2);
      EXPECT_EQ(r.queue.graphs_recorded(), i == 0 ? 0 : i < 4 ? 1 : 2);
    }
  });
}

// ---- failures -------------------------------------------------------------------------------------------

class NcclFailures : public Nccl {
 protected:
  void SetUp() override {
    Nccl::SetUp();
    if (!testing::is_emulated()) GTEST_SKIP() << "about ranks that fail";
  }
};

TEST_F(NcclFailures, AnErrorOfNcclEndsTheRun) {
  const auto errors = run(
      2, kGraph,
      [](Rank& r) {
        const Tensor x = r.filled(4, 1);
        r.all_reduce(x);
        r.queue.wait();
        double all_are_there = 0;
        r.ranks->sum({&all_are_there, 1});
        if (r.rank() == 0) {
          testing::set_rank_fault(1, RankFault::Hangs);
          testing::set_rank_fault(0, RankFault::Reports);
        }
        r.ranks->sum({&all_are_there, 1});
        for (int i = 0; i < 3; ++i) {
          r.queue.step([&] {
            r.all_reduce(x);
            r.wait();
          });
          r.queue.wait();
        }
      },
      1);
  EXPECT_NE(errors[0].find("rank 0: "), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("remote process exited"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("NCCL_DEBUG=WARN"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1], "");
}

TEST_F(NcclFailures, PatienceEnds) {
  for (const cuda::QueueOptions& options : {kGraph, kNoGraph, kChecked}) {
    testing::set_rank_fault(1, RankFault::None);
    const auto start = std::chrono::steady_clock::now();
    const auto errors = run(
        2, options,
        [](Rank& r) {
          const Tensor x = r.filled(4, 1);
          for (int i = 0; i < 4; ++i) {
            double all_are_there = 0;
            r.ranks->sum({&all_are_there, 1});
            if (i == 3) testing::set_rank_fault(1, RankFault::Hangs);  // a graph runs by then
            r.queue.step([&] {
              r.all_reduce(x);
              r.wait();
            });
            r.queue.wait();
          }
          FAIL() << "a rank that hangs was not missed";
        },
        0.5);
    EXPECT_NE(errors[0].find("rank 0 waits for the cards of other ranks"), std::string::npos) << errors[0];
    EXPECT_NE(errors[1], "");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

TEST_F(NcclFailures, ARankThatDoesNotStartIsMissed) {
  testing::set_rank_fault(1, RankFault::Hangs);
  const auto errors = run(
      2, kGraph, [](Rank&) { FAIL() << "started alone"; }, 0.3);
  for (const std::string& error : errors)
    EXPECT_NE(error.find("waits for the cards of other ranks"), std::string::npos) << error;
}

TEST_F(NcclFailures, RanksThatDisagreeAreFound) {
  const std::vector<std::pair<std::function<void(Rank&, const Tensor&)>, std::string>> cases = {
      {[](Rank& r, const Tensor& t) { r.all_reduce(t.slice(0, r.rank() == 0 ? 8 : 6)); }, "different counts"},
      {[](Rank& r, const Tensor& t) {
         r.rank() == 0 ? r.all_reduce(t) : r.gather(t.reshaped({8, 1}));
       },
       "different operations"},
      {[](Rank& r, const Tensor& t) {
         r.all_reduce(Tensor(t.data, {2}, r.rank() == 0 ? DType::F32 : DType::F64));
       },
       "different types"},
  };
  for (const auto& [call, words] : cases)
    for (const std::string& error : run(2, kNoGraph, [&](Rank& r) {
           const Tensor t = r.filled(8, 1);
           call(r, t);
           r.wait();
           r.queue.wait();
         }))
      // The runtime's own text of the error is the stand-in's.
      EXPECT_NE(error.find(words), std::string::npos) << error;
}

// A rank's failure must not leave its thread where the others do not come.
TEST_F(NcclFailures, ARankThatThrowsLeaves) {
  const auto errors = run(
      2, kGraph,
      [](Rank& r) {
        const Tensor x = r.filled(4, 1);
        if (r.rank() == 1) throw RunError("planted");
        r.all_reduce(x);
        r.wait();
        r.queue.wait();
      },
      0.5);
  EXPECT_EQ(errors[1], "planted");
  EXPECT_NE(errors[0].find("waits for the cards"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace compact
