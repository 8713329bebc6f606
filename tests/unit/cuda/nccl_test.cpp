#include "unit/cuda/nccl_testing.h"

#include <vector>

#include "compact/core/bf16.h"
#include "compact/dist/rows.h"

/// NCCL or its stand-in on tensors: against plain loops, among kernels, in steps.
namespace compact {
namespace {

using testing::kChecked;
using testing::kGraph;
using testing::kNoGraph;
using testing::Nccl;
using testing::Rank;

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

}  // namespace
}  // namespace compact
