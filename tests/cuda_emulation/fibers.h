#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <string>
#include <string_view>

#include "cuda_emulation/streams.h"

extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;

/// One fiber for each thread of a block, blocks one after another; see docs/cuda.md. A thread of the host
/// that waits for its streams runs their kernels itself, so several can at the same time, each with its own
/// fibers.
namespace compact::cuda::emulation {

/// The line of the kernel that waits.
using Site = std::source_location;

/// Throws RunError naming `op` where no card could launch this.
void check_launch(std::string_view op, dim3 grid, dim3 block, std::int64_t shared_bytes);
/// Runs `thread` for every thread of every block. Throws RunError naming `op`, the block and the thread where
/// the kernel breaks a rule (docs/cuda.md lists them).
void run_kernel(std::string_view op, dim3 grid, dim3 block, std::int64_t shared_bytes,
                const std::function<void()>& thread);

/// Notes a broken rule of the present thread; run_kernel throws the first one when the block has ended.
void fail(const std::string& what);

/// Lets the present fiber wait for all of its block, or of its warp. All must wait at the same line.
void block_barrier(Site site);
void warp_barrier(unsigned mask, Site site);
/// Numbers of the present thread in its warp and in its block.
int lane();
int thread_number();

/// The place of a lane in the exchange of its warp.
inline constexpr std::size_t kExchangeBytes = 64;
/// Publishes `bytes` of `value`, waits for the warp, and returns the places of all 32 lanes, valid until the
/// present lane's next exchange. `combine` is run once, on all places, when the last lane has come.
const unsigned char* exchange(const void* value, std::size_t bytes, Site site,
                              void (*combine)(unsigned char* places) = nullptr);

/// Fails where a shuffle may not read the lane `from`.
void check_lane(unsigned mask, int from);
/// `value` of the lane `from`.
template <typename T>
T from_lane(unsigned mask, const T& value, int from, Site site) {
  static_assert(sizeof(T) <= kExchangeBytes);
  check_lane(mask, from);
  T result;
  std::memcpy(&result, exchange(&value, sizeof(T), site) + static_cast<std::size_t>(from) * kExchangeBytes,
              sizeof(T));
  return result;
}
unsigned ballot(unsigned mask, bool predicate, Site site);

}  // namespace compact::cuda::emulation
