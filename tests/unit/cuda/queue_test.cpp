#include "compact/cuda/queue.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <stdexcept>
#include <vector>

#include "compact/memory/arena.h"
#include "cuda_emulation/faults.h"
#include "cuda_emulation/fiber_order.h"
#include "kernels/elementwise_cuda.h"
#include "test_device.h"

/// The queue on the emulated device, or on a card in the program that is linked for one.
namespace compact {
namespace {

using cuda::Queue;
using cuda::QueueOptions;

[[maybe_unused]] const int device_is_set =
    testing::is_emulated() ? setenv("COMPACT_TEST_DEVICE", "cuda", 1) : 0;

constexpr QueueOptions kGraph{}, kNoGraph{.graph = false}, kChecked{.sync_checks = true};

struct Device1 {
  explicit Device1(const QueueOptions& options = {}) : queue_owner(testing::make_test_queue(options)) {}

  Tensor make(std::int64_t n) { return arena.persistent("t", {n}, DType::F32, Category::Weights); }
  Tensor filled(std::int64_t n, float value) {
    const Tensor t = make(n);
    cuda::fill(queue, t, value);
    return t;
  }
  std::vector<float> get(const Tensor& t) {
    std::vector<float> host(static_cast<std::size_t>(t.elements()));
    queue.download(t.data, host.data(), t.bytes());
    return host;
  }
  float first(const Tensor& t) { return get(t)[0]; }
  Tensor live(float value) { return Tensor(const_cast<float*>(queue.live(value)), {1}, DType::F32); }

  std::unique_ptr<Queue> queue_owner;
  Queue& queue = *queue_owner;
  Arena arena{Device::Cuda, 1 << 20};
};

TEST(Queue, UploadsAndDownloads) {
  Device1 d;
  const Tensor t = d.make(1000);
  std::vector<float> host(1000);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i);
  d.queue.upload(host.data(), t.data, t.bytes());
  const std::vector<float> sent = host;
  std::fill(host.begin(), host.end(), -1.0f);  // it may be changed now
  EXPECT_EQ(d.get(t), sent);

  const cuda::PinnedMemory from(t.bytes()), to(t.bytes());
  std::memset(from.data(), 0, static_cast<std::size_t>(t.bytes()));
  d.queue.upload_later(from.data(), t.data, t.bytes());
  cuda::add(d.queue, t, d.filled(1000, 3), t);
  d.queue.download_later(t.data, to.data(), t.bytes());
  d.queue.wait();
  EXPECT_EQ(static_cast<const float*>(to.data())[999], 3);
}

// So a host that forgets to wait is found.
TEST(Queue, TheEmulationWorksAsLateAsPossible) {
  if (!testing::is_emulated()) GTEST_SKIP() << "about the emulation";
  Device1 d;
  const Tensor t = d.filled(1, 1);
  d.queue.wait();
  const cuda::PinnedMemory memory(8);
  float* host = static_cast<float*>(memory.data());
  host[0] = 5;
  host[1] = -1;
  d.queue.upload_later(host, t.data, 4);
  host[0] = 6;  // too early
  d.queue.download_later(t.data, host + 1, 4);
  EXPECT_EQ(host[1], -1);
  d.queue.wait();
  EXPECT_EQ(host[1], 6);
}

TEST(Queue, EqualLiveValuesOfAStepShareAPlace) {
  Device1 d;
  const Tensor a = d.make(1), b = d.make(1), c = d.make(1);
  std::set<const void*> places;
  int calls = 0;
  d.queue.step([&] {
    ++calls;
    for (const auto& [to, value] : {std::pair{a, 1.5f}, {b, 2.5f}, {c, 1.5f}}) {
      const Tensor place = d.live(value);
      places.insert(place.data);
      cuda::copy(d.queue, place, to);
    }
  });
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(places.size(), 2u);
  EXPECT_EQ(d.first(a), 1.5f);
  EXPECT_EQ(d.first(b), 2.5f);
  EXPECT_EQ(d.first(c), 1.5f);
}

// There is room for 16384 at a time.
TEST(Queue, LiveValuesOutsideOfStepsKeepTheirPlaceUntilTheyAreRead) {
  Device1 d(kNoGraph);
  const Tensor out = d.make(50);
  for (int i = 0; i < 50000; ++i) {
    const Tensor value = d.live(static_cast<float>(i));
    if (i % 1000 == 0) cuda::copy(d.queue, value, Tensor(out.as<float>() + i / 1000, {1}, DType::F32));
  }
  const std::vector<float> got = d.get(out);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], 1000.0f * static_cast<float>(i));
}

TEST(Queue, AStepIsRecordedOnceAndReplayedWithNewLiveValues) {
  Device1 d(kGraph);
  const Tensor sum = d.filled(1, 0), one = d.filled(1, 1), count = d.filled(1, 0);
  float expected = 0;
  for (int i = 0; i < 5; ++i) {
    const float value = 10.0f * static_cast<float>(i);
    d.queue.step([&] {
      cuda::add(d.queue, sum, d.live(value), sum);
      cuda::add(d.queue, count, one, count);
    });
    expected += value;
    EXPECT_EQ(d.first(sum), expected);
    EXPECT_EQ(d.first(count), static_cast<float>(i + 1)) << "the count of a step launched something";
    // What a step launches the first time is not recorded.
    EXPECT_EQ(d.queue.graphs_recorded(), i == 0 ? 0 : 1);
  }
}

// The next step's values may not overtake a step that still runs.
TEST(Queue, StepsInARowNeedNoWait) {
  Device1 d(kGraph);
  const Tensor out = d.make(64);
  for (int i = 0; i < 64; ++i) {
    const float value = static_cast<float>(i);
    d.queue.step([&] { cuda::copy(d.queue, d.live(value), Tensor(out.as<float>() + i, {1}, DType::F32)); });
  }
  const std::vector<float> got = d.get(out);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(got[i], static_cast<float>(i));
}

TEST(Queue, AStepIsRecordedAnewWhenALaunchChanges) {
  Device1 d(kGraph);
  const Tensor x = d.make(100);
  const auto step = [&](std::int64_t n, float value) {
    for (int i = 0; i < 2; ++i)
      d.queue.step([&] { cuda::fill(d.queue, Tensor(x.data, {n}, DType::F32), value); });
  };
  step(100, 1);
  step(100, 1);
  EXPECT_EQ(d.queue.graphs_recorded(), 1);
  step(100, 2);  // an argument
  EXPECT_EQ(d.queue.graphs_recorded(), 2);
  EXPECT_EQ(d.get(x)[99], 2);
  step(50, 3);  // a shape
  EXPECT_EQ(d.queue.graphs_recorded(), 3);
  EXPECT_EQ(d.get(x)[49], 3);
  EXPECT_EQ(d.get(x)[50], 2);
  for (int i = 0; i < 2; ++i)
    d.queue.step([&] {  // one more launch
      cuda::fill(d.queue, Tensor(x.data, {50}, DType::F32), 3);
      cuda::fill(d.queue, Tensor(x.data, {1}, DType::F32), 4);
    });
  EXPECT_EQ(d.queue.graphs_recorded(), 4);
  EXPECT_EQ(d.first(x), 4);
}

TEST(Queue, GraphsGiveTheBitsOfPlainLaunches) {
  std::vector<std::vector<float>> results;
  for (const QueueOptions& options : {kGraph, kNoGraph, kChecked}) {
    Device1 d(options);
    const Tensor x = d.filled(33, 0.1f), y = d.filled(33, 0.3f);
    for (int i = 0; i < 8; ++i) {
      const float value = 1.0f / static_cast<float>(i + 3);
      d.queue.step([&] {
        cuda::add(d.queue, x, y, x);
        if (i >= 4) cuda::add(d.queue, y, x, y);
        cuda::copy(d.queue, d.live(value), Tensor(x.as<float>() + i / 2, {1}, DType::F32));
      });
    }
    EXPECT_EQ(d.queue.graphs_recorded(), options.graph && !options.sync_checks ? 4 : 0);
    results.push_back(d.get(x));
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST(Queue, AnExceptionInAStepLeavesItUsable) {
  for (const QueueOptions& options : {kGraph, kNoGraph, kChecked}) {
    Device1 d(options);
    const Tensor x = d.filled(1, 1);
    for (const int throwing_call : {1, 2, 4}) {  // while it is counted, launched one by one, and recorded
      int calls = 0;
      const auto step = [&] {
        d.queue.step([&] {
          for (int i = 0; i < throwing_call; ++i)
            cuda::add(d.queue, x, d.live(1), x);  // other launches each time
          if (++calls == throwing_call) throw std::out_of_range("planted");
        });
      };
      if (throwing_call == 4) step();
      EXPECT_THROW(step(), std::out_of_range);
      EXPECT_EQ(calls, throwing_call);
      cuda::fill(d.queue, x, 2);  // outside of a step
      EXPECT_EQ(d.first(x), 2);
      d.queue.step([&] { cuda::add(d.queue, x, d.live(7), x); });
      EXPECT_EQ(d.first(x), 9);
    }
  }
}

TEST(Queue, BrokenRulesOfAStepAreBugs) {
  Device1 d(kGraph);
  const Tensor x = d.filled(1, 0);
  float value = 1, host = 0;
  EXPECT_THROW(d.queue.step([&] { d.queue.step([] {}); }), std::logic_error);
  EXPECT_THROW(d.queue.step([&] { d.live(value++); }), std::logic_error) << "not the same values twice";
  EXPECT_THROW(d.queue.step([&] { d.queue.upload(&value, x.data, 4); }), std::logic_error);
  EXPECT_THROW(d.queue.step([&] { d.queue.download(x.data, &host, 4); }), std::logic_error);
  EXPECT_THROW(d.queue.step([&] {
    for (int i = 0; i < 16385; ++i) d.live(static_cast<float>(i));
  }),
               RunError);
  d.queue.step([&] { cuda::copy(d.queue, d.live(5), x); });
  EXPECT_EQ(d.first(x), 5);
}

/// The error of `run`, which is a RunError.
std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const RunError& error) {
    return error.what();
  }
  return "no error";
}

// A card is gone after such an error; the emulation goes on.
TEST(Queue, AFailingKernelIsNamedWithSyncChecks) {
  if (!testing::is_emulated()) GTEST_SKIP() << "makes a launch fail, which a card does not";
  Device1 d(kChecked);
  const Tensor x = d.filled(1, 1);
  const auto work = [&] {
    cuda::fill(d.queue, x, 2);
    cuda::add(d.queue, x, x, x);
  };
  testing::fail_launch(2);
  const std::string direct = error_of(work);
  EXPECT_EQ(direct.find("add: CUDA error"), 0u) << direct;
  testing::fail_launch(1);
  const std::string in_step = error_of([&] { d.queue.step(work); });
  EXPECT_EQ(in_step.find("fill: CUDA error"), 0u) << in_step;
  d.queue.step(work);
  EXPECT_EQ(d.first(x), 4);
}

TEST(Queue, AFailingKernelShowsAtTheNextWaitWithoutSyncChecks) {
  if (!testing::is_emulated()) GTEST_SKIP() << "makes a launch fail, which a card does not";
  for (const QueueOptions& options : {kGraph, kNoGraph}) {
    Device1 d(options);
    const Tensor x = d.filled(1, 1);
    d.queue.wait();
    testing::fail_launch(1);
    EXPECT_EQ(error_of([&] { d.queue.step([&] { cuda::fill(d.queue, x, 2); }); }), "no error");
    const std::string late = error_of([&] { d.queue.wait(); });
    for (const char* words : {"cudaErrorLaunchFailure", "cuda.sync_checks=true"})
      EXPECT_NE(late.find(words), std::string::npos) << late;
    // It is told once: the next launch is not taken for the one that failed.
    cuda::fill(d.queue, x, 3);
    EXPECT_EQ(d.first(x), 3);
  }
}

TEST(Queue, ManyQueuesDoNotDisturbEachOther) {
  Device1 a(kGraph), b(kGraph);
  const Tensor x = a.make(1), y = b.make(1);
  a.queue.step([&] {
    cuda::copy(a.queue, a.live(1), x);
    cuda::fill(b.queue, y, 2);
  });
  b.queue.step([&] { cuda::add(b.queue, y, y, y); });
  EXPECT_EQ(a.first(x), 1);
  EXPECT_EQ(b.first(y), 4);
}

}  // namespace
}  // namespace compact
