#pragma once
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "compact/core/device.h"
#include "compact/core/error.h"
#include "compact/cuda/device.h"
#include "compact/cuda/queue.h"

namespace compact::testing {

/// The device that tests run on: COMPACT_TEST_DEVICE (cpu, cuda), or the CPU.
inline Device test_device() {
  static const Device device = [] {
    const char* name = std::getenv("COMPACT_TEST_DEVICE");
    return name != nullptr && std::string(name) == "cuda" ? Device::Cuda : Device::Cpu;
  }();
  return device;
}
inline bool on_cuda() { return test_device() == Device::Cuda; }

/// A queue on the CUDA device of the tests, whose memory the host sees; null on the CPU. Ends the program
/// with exit code 77 (skipped) where the tests shall run on a CUDA device and there is none.
inline std::unique_ptr<cuda::Queue> make_test_queue(const cuda::QueueOptions& options) {
  if (!on_cuda()) return nullptr;
  try {
    if (cuda::device_count() == 0) throw RunError("no CUDA device");
  } catch (const RunError& error) {
    std::fprintf(stderr, "skipped: %s\n", error.what());
    std::_Exit(77);
  }
  cuda::allocate_managed(true);
  return std::make_unique<cuda::Queue>(options);
}

/// The queue of tests of ops: every launch is waited for, so that its results can be looked at. Null on the
/// CPU.
inline cuda::Queue* test_queue() {
  static const std::unique_ptr<cuda::Queue> queue =
      make_test_queue(cuda::QueueOptions{.graph = false, .sync_checks = true});
  return queue.get();
}

}  // namespace compact::testing
