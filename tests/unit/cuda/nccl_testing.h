#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "compact/core/error.h"
#include "compact/cuda/device.h"
#include "compact/cuda/queue.h"
#include "compact/dist/nccl.h"
#include "compact/memory/context.h"
#include "cuda_emulation/faults.h"
#include "cuda_emulation/fiber_order.h"
#include "kernels/elementwise_cuda.h"

/// Ranks as threads, each with a queue on a device of its own, that send by NCCL or its stand-in.
namespace compact::testing {

inline constexpr int kDriver = 99000;  // newer than any runtime
inline constexpr cuda::QueueOptions kGraph{}, kNoGraph{.graph = false}, kChecked{.sync_checks = true};

/// What a rank has. Members go in the order in which a run ends.
struct Rank {
  Rank(std::unique_ptr<Communicator> host_, const cuda::QueueOptions& options, double patience)
      : host(std::move(host_)), queue(options), ranks(make_nccl_communicator(*host, queue, {patience})) {}

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

  std::unique_ptr<Communicator> host;
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
    if (is_emulated())
      set_machine({.driver = kDriver, .devices = cards_});
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
    set_side_first(false);
    for (int rank = 0; rank < 4; ++rank) set_rank_fault(rank, RankFault::None);
    if (is_emulated()) set_machine({.driver = kDriver});
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
      set_side_first(first);
      run_well(size, options, work);
    }
    set_side_first(false);
  }

  int cards_ = 0;
};

}  // namespace compact::testing
