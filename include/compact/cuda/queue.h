#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <type_traits>

struct CUstream_st;      // *cudaStream_t
struct cublasLtContext;  // *cublasLtHandle_t

namespace compact::cuda {

struct QueueOptions {
  int device = 0;            ///< ordinal of the card
  bool graph = true;         ///< run steps as a CUDA graph
  bool sync_checks = false;  ///< wait after every launch, so that an error names its op; no graph
  bool tf32 = false;         ///< fp32 products may round their operands to TF32
};

/// The ordered work of one device: a stream, the handles that ops need, and the way a step is repeated as a
/// CUDA graph. Work is asynchronous; every call is checked and throws RunError with the name of the op.
///
/// A step is given as a function that makes the same launches each time (`step`). Numbers that differ from
/// step to step do not go into launches, which a graph would freeze, but into `live` values: the function is
/// first run without launching anything, which collects the live values and a hash of all launches; the
/// values go to the device in one copy; then the graph of those launches runs. Launches with another hash
/// than before are made one by one the first time and recorded the second. So a graph is never stale, and the
/// step's list of calls is written once.
class Queue {
 public:
  /// Opens the device. Throws RunError without a driver, with too old a one, or where the card is of an
  /// architecture that this build has no code for.
  explicit Queue(const QueueOptions& options);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  const QueueOptions& options() const { return options_; }
  CUstream_st* stream() const;
  cublasLtContext* blas() const;
  /// What is known about matrix products, for the life of the queue (kernels/gemm_cuda.cpp); empty at first.
  std::shared_ptr<void>& products();
  /// Multiprocessors of the device: how many blocks fill it.
  int multiprocessors() const;

  /// The device address of a copy of `value`, there when what is launched next runs. Within a step equal
  /// values share one place. T is plain data.
  template <typename T>
  const T* live(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return static_cast<const T*>(live_bytes(&value, sizeof(T)));
  }

  /// Runs `work`, which launches the same ops each time it is called and has no other effect than that; it
  /// is called more than once.
  void step(const std::function<void()>& work);

  /// What every launch goes through (kernels/launch_cuda.h), library calls included: false where nothing may
  /// be launched now, because a step is only being counted. `bytes` is whatever the launch depends on.
  bool admit(const void* bytes, std::size_t count);
  /// Checks the launch of `op` that was just made; with sync_checks waits for it.
  void launched(std::string_view op);
  /// True within the function of a step.
  bool in_step() const;

  /// A second stream, of high priority, for calls that may run beside what else is queued.
  CUstream_st* side();
  /// What is given to the side stream from now on comes after all that was queued before.
  void fork();
  /// What is queued from now on comes after all that the side stream was given. Within a step every fork is
  /// joined; a step begins with a join.
  void join();
  /// Forgets the recorded graph, for the end of what its launches use.
  void forget_graph();

  /// Host memory to the device, and back. `upload` returns when the host memory may be changed; `download`
  /// returns when the data are there, after everything queued before. Not inside a step.
  void upload(const void* host, void* device, std::int64_t bytes);
  void download(const void* device, void* host, std::int64_t bytes);
  /// The same without waiting: the host memory is pinned (PinnedMemory) and stays as it is until `wait`.
  void upload_later(const void* pinned, void* device, std::int64_t bytes);
  void download_later(const void* device, void* pinned, std::int64_t bytes);
  /// Returns when all queued work is done. Throws RunError if any of it failed.
  void wait();
  /// From now on every wait of the host calls `begin`, and then about every 20 ms what that has returned; it
  /// ends the wait by throwing, or the process. Such waits ask the device again and again instead of
  /// standing in the driver for ever, should work depend on a device that never comes. None: as before.
  using Look = std::function<void()>;
  void watch(std::function<Look()> begin);

  /// Graphs recorded so far, for tests and for `compact bench`.
  std::int64_t graphs_recorded() const;

 private:
  struct State;
  const void* live_bytes(const void* value, std::size_t bytes);
  void finish(std::string_view what);

  QueueOptions options_;
  std::unique_ptr<State> state_;
};

/// Page-locked host memory, which the device copies from and to while the host goes on.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::int64_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// Memory of the current device, for the arena. Throws RunError when the device refuses.
void* allocate(std::int64_t bytes);
void release(void* memory);
/// From now on `allocate` gives memory that the host may read and write as well. For tests.
void allocate_managed(bool managed);

}  // namespace compact::cuda
