#include "cuda_emulation/streams.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda_emulation/faults.h"

/// The calls of the CUDA runtime that the backend makes for streams, events, graphs and errors.
using Work = std::function<void()>;

struct CUstream_st {
  bool capturing = false;
  std::vector<Work> captured;
  std::deque<Work> queued;
  std::uint64_t enqueued = 0, done = 0;  // pieces of work so far
  std::string error;
};
struct CUevent_st {
  cudaStream_t stream = nullptr;
  std::uint64_t after = 0;  // recorded behind this many pieces of work
};
struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};

namespace compact::cuda::emulation {

namespace {

std::vector<cudaStream_t> streams;
cudaStream_t last_used = nullptr;
cudaError_t last_error = cudaSuccess;
std::string error_text;
int failing = 0;  // the work that fails, counted down

/// What the call returns, kept for cudaGetLastError.
cudaError_t result_of(cudaError_t error, const char* text = "the emulation refused a call") {
  if (error != cudaSuccess) {
    last_error = error;
    error_text = text;
  }
  return error;
}

void finish(cudaStream_t stream, std::uint64_t until) {
  while (stream->done < until && !stream->queued.empty()) {
    const Work work = std::move(stream->queued.front());
    stream->queued.pop_front();
    ++stream->done;
    try {
      work();
    } catch (const std::exception& error) {
      stream->error = error.what();
      stream->done = stream->enqueued;
      stream->queued.clear();
    }
  }
}

cudaError_t take_error(cudaStream_t stream) {
  if (stream->error.empty()) return cudaSuccess;
  const std::string text = std::exchange(stream->error, {});
  return result_of(cudaErrorLaunchFailure, text.c_str());
}

}  // namespace

void enqueue(cudaStream_t stream, Work work) {
  last_used = stream;
  if (failing > 0 && --failing == 0)
    work = [] { throw std::runtime_error("a failure that a test asked for"); };
  if (stream->capturing) return stream->captured.push_back(std::move(work));
  stream->queued.push_back(std::move(work));
  ++stream->enqueued;
}

void in_order(Work change) {
  if (last_used == nullptr || (last_used->queued.empty() && !last_used->capturing)) return change();
  const int kept = std::exchange(failing, 0);  // not a launch
  enqueue(last_used, std::move(change));
  failing = kept;
}

void finish_all() {
  for (cudaStream_t stream : streams) finish(stream, stream->enqueued);
}

}  // namespace compact::cuda::emulation

namespace compact::testing {
void fail_launch(int number) { cuda::emulation::failing = number; }
}  // namespace compact::testing

namespace emulation = compact::cuda::emulation;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    default:
      return "an error of the emulation";
  }
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
  emulation::streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  emulation::finish(stream, stream->enqueued);
  std::erase(emulation::streams, stream);
  if (emulation::last_used == stream) emulation::last_used = nullptr;
  delete stream;
  return cudaSuccess;
}
// As on a device: waiting is not possible while capturing.
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->capturing) return emulation::result_of(cudaErrorStreamCaptureUnsupported);
  emulation::finish(stream, stream->enqueued);
  return emulation::take_error(stream);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capturing) return emulation::result_of(cudaErrorIllegalState);
  stream->capturing = true;
  emulation::last_used = stream;
  stream->captured.clear();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!stream->capturing) return emulation::result_of(cudaErrorIllegalState);
  stream->capturing = false;
  *graph = new CUgraph_st{std::move(stream->captured)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const Work& work : executable->work) emulation::enqueue(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
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
  if (stream->capturing) return emulation::result_of(cudaErrorStreamCaptureUnsupported);
  *event = {stream, stream->enqueued};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->stream == nullptr) return cudaSuccess;
  emulation::finish(event->stream, event->after);
  return emulation::take_error(event->stream);
}

}  // extern "C"
