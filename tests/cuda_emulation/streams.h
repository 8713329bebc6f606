#pragma once
#include <cuda_runtime_api.h>

#include <functional>

/// The order of work on the emulated devices. A stream is used by the thread of the host that has made it,
/// and its work is done by that thread.
namespace compact::cuda::emulation {

/// Adds `work` to what is queued on `stream`, or to the graph that is being captured there. Queued work is
/// done as late as possible: when the host waits for it. So a host that reads results, or changes the source
/// of a copy, without waiting is found. An exception of the work is an error of the stream: the next wait
/// returns it, with the exception's text as cudaGetErrorString, and the rest of the queue is dropped.
void enqueue(cudaStream_t stream, std::function<void()> work);

/// The same for work that has to wait for other threads: `attempt` is called again and again until it returns
/// true, which is when the work is done.
void enqueue_attempts(cudaStream_t stream, std::function<bool()> attempt);

/// Makes `change` when all that the thread has queued so far on the stream of its last kernel or copy is
/// done: now, where nothing is queued.
void in_order(std::function<void()> change);

/// Does the queued work of all streams of the thread. Errors wait for those who wait for their streams.
void finish_all();

}  // namespace compact::cuda::emulation
