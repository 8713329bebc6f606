#include "cuda_emulation/streams.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_emulation/faults.h"

/// The calls of the CUDA runtime that the backend makes for streams, events, graphs and errors.
using Work = std::function<bool()>;  // true: done

/// What was recorded of several streams, in the order of the calls. Events are numbers here.
struct Recording {
  struct Item {
    enum class Kind { Piece, Record, Wait } kind;
    int branch;     // number of the stream in the recording; 0 is the one that it began with
    int event = 0;  // of Record and Wait
    Work work;
  };
  std::vector<Item> items;
  std::vector<cudaStream_t> branches;  // while recording
  int events = 0;

  /// True where everything of a branch comes before what the first one still waits for.
  bool joined(int branch) const {
    std::size_t at = items.size();
    while (at > 0 && items[at - 1].branch != branch) --at;
    if (at == 0) return true;
    const Item& last = items[at - 1];
    if (last.kind != Item::Kind::Record) return false;
    return std::any_of(items.begin(), items.end(), [&](const Item& item) {
      return item.kind == Item::Kind::Wait && item.branch == 0 && item.event == last.event;
    });
  }
};

struct CUstream_st {
  const std::thread::id owner = std::this_thread::get_id();
  std::shared_ptr<Recording> recording;  // where it is being captured
  int branch = 0;
  std::deque<Work> queued;
  std::uint64_t enqueued = 0, done = 0;  // pieces of work so far
  bool busy = false, of_graph = false;
  std::string error;
};
struct CUevent_st {
  cudaStream_t stream = nullptr;
  std::uint64_t after = 0;             // recorded behind this many pieces of work
  std::weak_ptr<Recording> recording;  // where it was recorded in a capture
  bool captured = false;
  int number = 0;  // in the recording
};
struct CUgraph_st {
  Recording recording;
};
/// A recording and the streams of its branches but the first. Launches that are not done own it as well.
struct Branches {
  Recording recording;
  std::vector<CUstream_st> streams;
};
struct CUgraphExec_st {
  std::shared_ptr<Branches> branches;
};

namespace compact::cuda::emulation {

namespace {

/// Then a test fails that would hang otherwise.
constexpr std::chrono::seconds kLongestWait{60};

std::mutex streams_mutex;
std::vector<cudaStream_t> streams;  // of all threads
thread_local cudaStream_t last_used = nullptr;
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string error_text;
thread_local int failing = 0;  // the work that fails, counted down
std::atomic<bool> side_first = false;

/// What the call returns, kept for cudaGetLastError.
cudaError_t result_of(cudaError_t error, const char* text = "the emulation refused a call") {
  if (error != cudaSuccess) {
    last_error = error;
    error_text = text;
  }
  return error;
}

void add(cudaStream_t stream) {
  const std::lock_guard lock(streams_mutex);
  streams.push_back(stream);
}
void remove(cudaStream_t stream) {
  const std::lock_guard lock(streams_mutex);
  std::erase(streams, stream);
}
/// Those of the calling thread.
std::vector<cudaStream_t> own_streams() {
  const std::lock_guard lock(streams_mutex);
  std::vector<cudaStream_t> own = streams;
  std::erase_if(own, [](cudaStream_t stream) { return stream->owner != std::this_thread::get_id(); });
  return own;
}
/// False once the graph that it belonged to is gone.
bool exists(cudaStream_t stream) {
  const std::lock_guard lock(streams_mutex);
  return std::find(streams.begin(), streams.end(), stream) != streams.end();
}

void drop(cudaStream_t stream, const std::string& error) {
  stream->error = error;
  stream->done = stream->enqueued;
  stream->queued.clear();
}

/// Does work until `until` pieces are done; false where one of them has to wait for another thread.
bool advance(cudaStream_t stream, std::uint64_t until) {
  if (stream->busy) return stream->done >= until;  // the stream waits for one that waits for what it has done
  while (stream->done < until && !stream->queued.empty()) {
    try {
      stream->busy = true;
      const bool done = stream->queued.front()();
      stream->busy = false;
      if (!done) return false;
      stream->queued.pop_front();
      ++stream->done;
    } catch (const std::exception& error) {
      stream->busy = false;
      drop(stream, error.what());
    }
  }
  return true;
}

/// The same for a call of the host.
bool try_finish(cudaStream_t stream, std::uint64_t until) {
  if (side_first)
    for (cudaStream_t other : own_streams())
      if (other != stream && exists(other)) advance(other, other->enqueued);
  return advance(stream, until);
}

void finish(cudaStream_t stream, std::uint64_t until) {
  const auto start = std::chrono::steady_clock::now();
  while (!try_finish(stream, until)) {
    if (std::chrono::steady_clock::now() - start > kLongestWait)
      return drop(stream, "the emulation has waited for another rank for a minute");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

cudaError_t take_error(cudaStream_t stream) {
  if (stream->error.empty()) return cudaSuccess;
  const std::string text = std::exchange(stream->error, {});
  return result_of(cudaErrorLaunchFailure, text.c_str());
}

void push(cudaStream_t stream, Work work) {
  if (stream->owner != std::this_thread::get_id())
    throw std::logic_error("a stream of the emulation is used by a thread that has not made it");
  if (stream->recording) {
    stream->recording->items.push_back({Recording::Item::Kind::Piece, stream->branch, 0, std::move(work)});
    return;
  }
  stream->queued.push_back(std::move(work));
  ++stream->enqueued;
}

Work always(std::function<void()> work) {
  return [work = std::move(work)] {
    work();
    return true;
  };
}

/// `owner` is of the other stream.
void push_wait(cudaStream_t stream, cudaStream_t other, std::uint64_t after,
               std::shared_ptr<Branches> owner = nullptr) {
  push(stream, [other, after, owner = std::move(owner)] {
    if (!advance(other, after)) return false;
    // An error of a device shows everywhere.
    if (!other->error.empty()) throw std::runtime_error(std::exchange(other->error, {}));
    return true;
  });
}

}  // namespace

void enqueue(cudaStream_t stream, std::function<void()> work) {
  last_used = stream;
  if (failing > 0 && --failing == 0)
    work = [] { throw std::runtime_error("a failure that a test asked for"); };
  push(stream, always(std::move(work)));
}

void enqueue_attempts(cudaStream_t stream, std::function<bool()> attempt) {
  push(stream, std::move(attempt));
}

void in_order(std::function<void()> change) {
  if (last_used == nullptr || (last_used->queued.empty() && !last_used->recording)) return change();
  push(last_used, always(std::move(change)));
}

void finish_all() {
  for (cudaStream_t stream : own_streams())  // what belongs to a graph is waited for by one of the others
    if (exists(stream) && !stream->of_graph) finish(stream, stream->enqueued);
}

}  // namespace compact::cuda::emulation

namespace compact::testing {
void fail_launch(int number) { cuda::emulation::failing = number; }
void set_side_first(bool first) { cuda::emulation::side_first = first; }
}  // namespace compact::testing

namespace emulation = compact::cuda::emulation;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation           ? "cudaErrorMemoryAllocation"
         : error == cudaErrorLaunchFailure            ? "cudaErrorLaunchFailure"
         : error == cudaErrorStreamCaptureUnsupported ? "cudaErrorStreamCaptureUnsupported"
         : error == cudaErrorStreamCaptureUnjoined    ? "cudaErrorStreamCaptureUnjoined"
                                                      : "an error of the emulation";
}
const char* cudaGetErrorString(cudaError_t) { return emulation::error_text.c_str(); }
cudaError_t cudaGetLastError() { return std::exchange(emulation::last_error, cudaSuccess); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  emulation::enqueue(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  emulation::add(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  emulation::finish(stream, stream->enqueued);
  emulation::remove(stream);
  if (emulation::last_used == stream) emulation::last_used = nullptr;
  delete stream;
  return cudaSuccess;
}
// As on a device: waiting is not possible while capturing.
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->recording) return emulation::result_of(cudaErrorStreamCaptureUnsupported);
  emulation::finish(stream, stream->enqueued);
  return emulation::take_error(stream);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->recording) return emulation::result_of(cudaErrorStreamCaptureUnsupported);
  if (!emulation::try_finish(stream, stream->enqueued)) return emulation::result_of(cudaErrorNotReady);
  return emulation::take_error(stream);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->recording) return emulation::result_of(cudaErrorIllegalState);
  stream->recording = std::make_shared<Recording>();
  stream->recording->branches.push_back(stream);
  stream->branch = 0;
  emulation::last_used = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream->recording || stream->branch != 0) return emulation::result_of(cudaErrorIllegalState);
  const std::shared_ptr<Recording> recording = stream->recording;
  const std::vector<cudaStream_t> branches = std::exchange(recording->branches, {});
  for (cudaStream_t branch : branches) branch->recording.reset();
  for (cudaStream_t branch : branches)
    if (branch != stream && !recording->joined(branch->branch))
      return emulation::result_of(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{std::move(*recording)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  int branches = 1;
  for (const Recording::Item& item : graph->recording.items) branches = std::max(branches, item.branch + 1);
  const auto release = [](Branches* b) {
    for (CUstream_st& stream : b->streams) emulation::remove(&stream);
    delete b;
  };
  std::shared_ptr<Branches> made(new Branches{graph->recording, {}}, release);
  made->streams = std::vector<CUstream_st>(static_cast<std::size_t>(branches - 1));
  for (CUstream_st& stream : made->streams) {
    stream.of_graph = true;
    emulation::add(&stream);
  }
  *executable = new CUgraphExec_st{std::move(made)};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::shared_ptr<Branches>& graph = executable->branches;
  const auto of = [&](int branch) {
    return branch == 0 ? stream : &graph->streams[static_cast<std::size_t>(branch - 1)];
  };
  std::vector<CUevent_st> events(static_cast<std::size_t>(graph->recording.events));
  for (const Recording::Item& item : graph->recording.items) {
    const auto event = events.begin() + item.event;
    switch (item.kind) {
      case Recording::Item::Kind::Piece:
        emulation::push(of(item.branch), item.work);
        break;
      case Recording::Item::Kind::Record:
        event->stream = of(item.branch);
        event->after = event->stream->enqueued;
        break;
      case Recording::Item::Kind::Wait:
        emulation::push_wait(of(item.branch), event->stream, event->after,
                             item.branch == 0 ? graph : nullptr);
        break;
    }
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
// As on a device: a graph that still runs goes away when it is done.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *event = {};
  if (!stream->recording) {
    event->stream = stream;
    event->after = stream->enqueued;
    return cudaSuccess;
  }
  Recording& recording = *stream->recording;
  event->recording = stream->recording;
  event->captured = true;
  event->number = recording.events++;
  recording.items.push_back({Recording::Item::Kind::Record, stream->branch, event->number, {}});
  return cudaSuccess;
}
// As on a device, a stream that waits for an event of a capture is captured from then on.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!event->captured) {
    if (stream->recording) return emulation::result_of(cudaErrorStreamCaptureIsolation);
    if (event->stream != nullptr) emulation::push_wait(stream, event->stream, event->after);
    return cudaSuccess;
  }
  const std::shared_ptr<Recording> recording = event->recording.lock();
  if (!recording || recording->branches.empty()) return emulation::result_of(cudaErrorCapturedEvent);
  if (stream->recording && stream->recording != recording)
    return emulation::result_of(cudaErrorStreamCaptureMerge);
  if (!stream->recording) {
    stream->recording = recording;
    stream->branch = static_cast<int>(recording->branches.size());
    recording->branches.push_back(stream);
  }
  recording->items.push_back({Recording::Item::Kind::Wait, stream->branch, event->number, {}});
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->captured) return emulation::result_of(cudaErrorCapturedEvent);
  if (event->stream == nullptr) return cudaSuccess;
  if (!emulation::try_finish(event->stream, event->after)) return emulation::result_of(cudaErrorNotReady);
  return emulation::take_error(event->stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->captured) return emulation::result_of(cudaErrorCapturedEvent);
  if (event->stream == nullptr) return cudaSuccess;
  emulation::finish(event->stream, event->after);
  return emulation::take_error(event->stream);
}

}  // extern "C"
