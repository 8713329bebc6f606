#include "compact/cuda/queue.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <unordered_map>

#include "compact/core/error.h"
#include "compact/cuda/check.h"
#include "compact/cuda/device.h"
#include "compact/cuda/owned.h"
#include "compact/cuda/range.h"
#include "src/cuda/code.h"

namespace compact::cuda {

namespace {

std::atomic<bool> managed_memory = false;

/// Live values of a step, and those of launches outside of steps, each in half of this.
constexpr std::size_t kLiveBytes = std::size_t{1} << 19, kHalf = kLiveBytes / 2;
constexpr std::size_t kLiveAlignment = 16;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kLiveAlignment - 1) / kLiveAlignment * kLiveAlignment;
}

}  // namespace

struct Queue::State {
  enum class Mode {
    Direct,    // outside of a step
    Counting,  // a step's first run: nothing is launched
    Running,   // its second: launched, or recorded
  };

  Owned<cudaStream_t, cudaStreamDestroy> stream, side;
  Owned<cudaEvent_t, cudaEventDestroy> forked, joined;
  bool apart = false;  // the side stream was given work since the last join
  std::function<Look()> watch;
  Owned<cublasLtHandle_t, cublasLtDestroy> blas;
  std::shared_ptr<void> products;
  int multiprocessors = 0;
  Mode mode = Mode::Direct;

  std::unique_ptr<PinnedMemory> live_host;              // the step's half, then that of direct launches
  Owned<void*, cudaFree> live_device;                   // the same
  Owned<cudaEvent_t, cudaEventDestroy> uploaded;        // the step's values have left live_host
  std::unordered_map<std::string, std::size_t> values;  // of this step, by their bytes: where they lie
  std::size_t used = 0, direct_used = 0;

  std::uint64_t hash = 0;                              // of all launches of this step
  std::uint64_t launched_hash = 0, recorded_hash = 0;  // of those launched one by one last, and recorded last
  Owned<cudaGraphExec_t, cudaGraphExecDestroy> executable;
  std::int64_t recorded = 0;

  std::byte* host() const { return static_cast<std::byte*>(live_host->data()); }
  std::byte* device() const { return static_cast<std::byte*>(live_device.get()); }
};

namespace {

/// Puts the mode back also where a step throws.
template <typename Mode>
class ModeScope {
 public:
  ModeScope(Mode& mode, Mode now) : mode_(mode), before_(mode) { mode_ = now; }
  ~ModeScope() { mode_ = before_; }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  Mode &mode_, before_;
};

Owned<cudaEvent_t, cudaEventDestroy> make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return Owned<cudaEvent_t, cudaEventDestroy>(event);
}

/// Asks `query` until it has an answer.
template <typename Query>
void ask(Query query, const Queue::Look& look, std::string_view what) {
  using Clock = std::chrono::steady_clock;
  using std::chrono::microseconds;
  const Clock::time_point start = Clock::now();
  Clock::time_point next_look = start;
  while (true) {
    const cudaError_t result = query();
    if (result != cudaErrorNotReady) return check(result, what);
    cudaGetLastError();  // it is no error
    const Clock::time_point now = Clock::now();
    if (now >= next_look) {
      look();
      next_look = now + std::chrono::milliseconds(20);
    }
    // What the sleep adds to the wait is a fiftieth of it at most.
    std::this_thread::sleep_for(std::clamp(std::chrono::duration_cast<microseconds>(now - start) / 50,
                                           microseconds(2), microseconds(200)));
  }
}

}  // namespace

Queue::Queue(const QueueOptions& options) : options_(options), state_(std::make_unique<State>()) {
  device_info(options.device);  // throws where the device cannot be used
  State& s = *state_;
  check(cudaSetDevice(options.device), "cudaSetDevice");
  if (!has_code_for_device())
    run_error(
        "device \"cuda\": this build has no code for {}; build with -DCMAKE_CUDA_ARCHITECTURES=native, or "
        "without that "
        "option",
        device_info(options.device).name);
  check(cudaDeviceGetAttribute(&s.multiprocessors, cudaDevAttrMultiProcessorCount, options.device),
        "cudaDeviceGetAttribute");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  s.stream.reset(stream);
  cublasLtHandle_t blas = nullptr;
  check(cublasLtCreate(&blas), "cublasLtCreate");
  s.blas.reset(blas);
  s.uploaded = make_event();
  s.live_host = std::make_unique<PinnedMemory>(kLiveBytes);
  void* device = nullptr;
  check(cudaMalloc(&device, kLiveBytes), "cudaMalloc");
  s.live_device.reset(device);
}

Queue::~Queue() {
  // Whatever still runs reads memory that goes away next.
  if (state_->stream) cudaStreamSynchronize(state_->stream.get());
  if (state_->side) cudaStreamSynchronize(state_->side.get());
}

CUstream_st* Queue::stream() const { return state_->stream.get(); }
cublasLtContext* Queue::blas() const { return state_->blas.get(); }
std::shared_ptr<void>& Queue::products() { return state_->products; }
int Queue::multiprocessors() const { return state_->multiprocessors; }
std::int64_t Queue::graphs_recorded() const { return state_->recorded; }
bool Queue::in_step() const { return state_->mode != State::Mode::Direct; }

CUstream_st* Queue::side() {
  State& s = *state_;
  if (!s.side) {
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "cudaStreamCreate");
    s.side.reset(stream);
    s.forked = make_event();
    s.joined = make_event();
  }
  return s.side.get();
}

void Queue::fork() {
  State& s = *state_;
  CUstream_st* const to = side();
  s.apart = true;
  constexpr std::string_view kName = "fork";
  if (!admit(kName.data(), kName.size())) return;
  check(cudaEventRecord(s.forked.get(), stream()), kName);
  check(cudaStreamWaitEvent(to, s.forked.get(), 0), kName);
}

void Queue::join() {
  State& s = *state_;
  if (!s.apart) return;
  s.apart = false;
  constexpr std::string_view kName = "join";
  if (!admit(kName.data(), kName.size())) return;
  check(cudaEventRecord(s.joined.get(), s.side.get()), kName);
  check(cudaStreamWaitEvent(stream(), s.joined.get(), 0), kName);
}

void Queue::forget_graph() {
  state_->executable.reset();
  state_->recorded_hash = 0;
}

void Queue::watch(std::function<Look()> begin) { state_->watch = std::move(begin); }

const void* Queue::live_bytes(const void* value, std::size_t bytes) {
  State& s = *state_;
  if (s.mode == State::Mode::Direct) {
    if (s.direct_used + aligned(bytes) > kHalf) {
      wait();  // the older values may be overwritten then
      s.direct_used = 0;
    }
    const std::size_t at = kHalf + s.direct_used;
    s.direct_used += aligned(bytes);
    std::memcpy(s.host() + at, value, bytes);
    upload_later(s.host() + at, s.device() + at, static_cast<std::int64_t>(bytes));
    return s.device() + at;
  }
  const auto [entry, is_new] =
      s.values.try_emplace(std::string(static_cast<const char*>(value), bytes), s.used);
  if (is_new) {
    require(s.mode == State::Mode::Counting, "Queue::live", "a value that the count of the step did not see");
    if (s.used + aligned(bytes) > kHalf)
      run_error("a step has too many different numbers for its {} bytes", kHalf);
    std::memcpy(s.host() + s.used, value, bytes);
    s.used += aligned(bytes);
  }
  return s.device() + entry->second;
}

void Queue::step(const std::function<void()>& work) {
  State& s = *state_;
  const Range range("step");
  require(s.mode == State::Mode::Direct, "Queue::step", "a step inside a step");
  if (s.watch)
    ask([&] { return cudaEventQuery(s.uploaded.get()); }, s.watch(), "step");
  else
    check(cudaEventSynchronize(s.uploaded.get()), "step");
  join();  // a graph cannot wait for what was given to the side stream before it
  s.values.clear();
  s.used = 0;
  s.hash = 0;
  const auto run = [&] {
    work();
    require(!s.apart, "Queue::step", "a step ends with work of the side stream that nothing waits for");
  };
  {
    const ModeScope scope(s.mode, State::Mode::Counting);
    const ModeScope apart(s.apart, false);
    run();
  }
  if (s.used > 0) upload_later(s.host(), s.device(), static_cast<std::int64_t>(s.used));
  check(cudaEventRecord(s.uploaded.get(), stream()), "step");

  const ModeScope scope(s.mode, State::Mode::Running);
  // New launches are made one by one the first time: what kernels and libraries load then cannot be recorded.
  if (!options_.graph || options_.sync_checks || (s.hash != s.launched_hash && s.hash != s.recorded_hash)) {
    s.launched_hash = s.hash;
    return run();
  }
  if (!s.executable || s.hash != s.recorded_hash) {
    s.executable.reset();
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    try {
      const ModeScope apart(s.apart, false);
      run();
    } catch (...) {
      cudaStreamEndCapture(stream(), &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();  // of a recording that was broken off
      throw;
    }
    check(cudaStreamEndCapture(stream(), &graph), "cudaStreamEndCapture");
    const Owned<cudaGraph_t, cudaGraphDestroy> owned(graph);
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    s.executable.reset(executable);
    s.recorded_hash = s.hash;
    ++s.recorded;
  }
  check(cudaGraphLaunch(s.executable.get(), stream()), "cudaGraphLaunch");
}

bool Queue::admit(const void* bytes, std::size_t count) {
  State& s = *state_;
  if (s.mode != State::Mode::Counting) return true;
  s.hash = XXH3_64bits_withSeed(bytes, count, s.hash);
  return false;
}

void Queue::launched(std::string_view op) {
  if (options_.sync_checks) finish(op);
}

void Queue::finish(std::string_view what) {
  if (!state_->watch) return check(cudaStreamSynchronize(stream()), what);
  ask([this] { return cudaStreamQuery(stream()); }, state_->watch(), what);
}

void Queue::upload(const void* host, void* device, std::int64_t bytes) {
  upload_later(host, device, bytes);
  wait();
}
void Queue::download(const void* device, void* host, std::int64_t bytes) {
  download_later(device, host, bytes);
  wait();
}
void Queue::upload_later(const void* pinned, void* device, std::int64_t bytes) {
  require(state_->mode == State::Mode::Direct, "Queue", "an upload inside a step");
  check(cudaMemcpyAsync(device, pinned, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream()),
        "upload");
}
void Queue::download_later(const void* device, void* pinned, std::int64_t bytes) {
  require(state_->mode == State::Mode::Direct, "Queue", "a download inside a step");
  check(cudaMemcpyAsync(pinned, device, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, stream()),
        "download");
}
void Queue::wait() {
  join();
  finish("a kernel or copy queued before");
}

PinnedMemory::PinnedMemory(std::int64_t bytes) {
  check(cudaMallocHost(&data_, static_cast<std::size_t>(bytes)), "cudaMallocHost");
}
PinnedMemory::~PinnedMemory() { cudaFreeHost(data_); }

void* allocate(std::int64_t bytes) {
  void* memory = nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  check(managed_memory ? cudaMallocManaged(&memory, size, cudaMemAttachGlobal) : cudaMalloc(&memory, size),
        "the arena of " + std::to_string(bytes) + " bytes");
  return memory;
}
void release(void* memory) { cudaFree(memory); }
void allocate_managed(bool managed) { managed_memory = managed; }

}  // namespace compact::cuda
