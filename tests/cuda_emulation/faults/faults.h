#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"

/// Kernels that each break one rule, with a block of 64 threads unless said otherwise. x and y are F32 [64].
namespace compact::cuda::faults {

inline constexpr int kThreads = 64;

/// y[t] = x[t - 1] through shared memory, y[0] = x[0]; the barrier between is left out where `sound` is
/// false.
void block_exchange(Queue& queue, const Tensor& x, const Tensor& y, bool sound);
void warp_exchange(Queue& queue, const Tensor& x, const Tensor& y, bool sound);
/// The same in place, one block for each element: no barrier could help.
void in_place_across_blocks(Queue& queue, const Tensor& x);
/// Lane 0 does not come to the shuffle; it comes to another one; it leaves; lanes are left out of the mask; a
/// block of 16 threads reads lane 16.
enum class Meeting { Missing, ElsewhereInWarp, ElsewhereInBlock, Left, Mask, AbsentLane };
void meet(Queue& queue, Meeting how, const Tensor& y);

/// Writes x[at]; y[0] = x[at].
void write_at(Queue& queue, const Tensor& x, std::int64_t at);
void read_at(Queue& queue, const Tensor& x, std::int64_t at, const Tensor& y);
/// Writes element `at` of shared memory of 64 floats; y = element t + `at`, where `fill` after writing each.
enum class Kind { Static, Dynamic };
void write_shared(Queue& queue, Kind kind, int at);
void read_shared(Queue& queue, Kind kind, int at, bool fill, const Tensor& y);

/// Loads, or stores, vectors of four floats from x + offset on.
void load_vectors(Queue& queue, const Tensor& x, std::int64_t offset, const Tensor& y);
void store_vectors(Queue& queue, const Tensor& x, std::int64_t offset);

/// y = x by asynchronous copies into shared memory.
enum class Copying {
  Sound,
  NoWait,         // read before the wait
  OneGroupLess,   // waits for the first of two groups only
  NotCommitted,   // waits, but the group was never closed
  NeverWaited,    // nobody reads either
  NoBarrier,      // one warp waits and copies, the other reads
  RefilledEarly,  // the next copy starts while others still read
};
void copy_through_shared(Queue& queue, Copying how, const Tensor& x, const Tensor& y);

/// True where this file was compiled with AddressSanitizer.
bool is_sanitized();

}  // namespace compact::cuda::faults
