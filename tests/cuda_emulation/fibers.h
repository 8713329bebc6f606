#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

/// One fiber for each thread of a block, blocks one after another; see docs/cuda.md.
namespace compact::cuda::emulation {

extern uint3 thread_index, block_index;
extern dim3 block_size, grid_size;

/// Runs `thread` for every thread of every block. Throws RunError naming `op` where the kernel breaks a rule:
/// a thread that leaves while others wait at a barrier, a misaligned vector access, a write outside of shared
/// memory.
void run_kernel(std::string_view op, dim3 grid, dim3 block, std::int64_t shared_bytes,
                const std::function<void()>& thread);

/// Lets the present fiber wait for all of its block, or of its warp.
void block_barrier();
void warp_barrier();
/// Number of the present thread in its warp.
int lane();

/// The place of the present lane in the exchange of its warp: bytes that others read after the barrier.
inline constexpr std::size_t kExchangeBytes = 32;
/// Publishes `bytes` of `value`, waits for the warp, and returns the places of all 32 lanes, valid until the
/// present lane's next exchange.
const unsigned char* exchange(const void* value, std::size_t bytes);

template <typename T>
T from_lane(const T& value, int lane) {
  static_assert(sizeof(T) <= kExchangeBytes);
  T result;
  std::memcpy(&result, exchange(&value, sizeof(T)) + static_cast<std::size_t>(lane) * kExchangeBytes,
              sizeof(T));
  return result;
}
unsigned ballot(bool predicate);

/// Called where a kernel declares shared memory: poisons it when the first thread of a block comes by.
void enter_shared(void* memory, std::size_t bytes);
unsigned char* dynamic_shared();

/// Notes a broken rule of the running kernel; run_kernel throws it when the block has ended.
void fail(const std::string& what);
void require_aligned(const void* address, std::size_t bytes);

/// Runs `work` now, or adds it to the graph that is being captured on `stream`.
void enqueue(cudaStream_t stream, std::function<void()> work);

}  // namespace compact::cuda::emulation
