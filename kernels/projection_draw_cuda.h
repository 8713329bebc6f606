#pragma once
#include <cstdint>
#include <type_traits>

#include "compact/core/philox.h"
#include "compact/kernels/projection.h"
#include "kernels/launch_cuda.h"
#include "kernels/philox_cuda.h"

/// What drawing a hadamard or a sparse P takes: its random words, and the sorting of them by one block.
namespace compact::cuda {

struct ProjectionWords {
  std::uint64_t seed;
  std::uint32_t window, stream;
};
inline ProjectionWords words_of(const Projection& p) {
  return {p.seed, p.window, stream_word(Stream::Projection, p.id)};
}

/// Words 4 · block .. 4 · block + 3 of those with this row in their counters.
__device__ __forceinline__ uint4 row_words(const ProjectionWords& p, std::uint32_t row, std::uint32_t block) {
  return philox_words(block, row, p.window, p.stream, p.seed);
}

/// A count of keys: 32 bits where the keys have no more, since that many fit in shared memory.
template <typename Key>
using CountOf = std::conditional_t<sizeof(Key) == 8, std::int64_t, int>;

/// Where a block keeps its keys: in shared memory those of 32 bits, from outside[first] on the others.
template <typename Key>
__device__ __forceinline__ Key* place_of_keys(unsigned char* shared, Key* outside, std::int64_t first = 0) {
  if constexpr (sizeof(Key) == 4)
    return reinterpret_cast<Key*>(shared);
  else
    return outside + first;
}

/// Threads of the block that sorts `count` keys (a power of two), one pair of keys each as far as they go.
inline int sorting_threads(std::int64_t count) {
  return count >= 2048 ? 1024 : count <= 64 ? kWarp : static_cast<int>(count / 2);
}

/// Sorts keys [count] upwards, count a power of two, by the whole block (a bitonic network: log2(count)
/// (log2(count) + 1) / 2 exchanges of all keys, the same whatever the keys are). The block must have met
/// since the keys were written.
template <typename Key>
__device__ __forceinline__ void sort_keys(Key* keys, CountOf<Key> count) {
  using Count = CountOf<Key>;
  for (Count size = 2; size <= count; size *= 2)
    for (Count stride = size / 2; stride > 0; stride /= 2) {
      for (Count pair = threadIdx.x; pair < count / 2; pair += blockDim.x) {
        const Count i = 2 * pair - (pair & (stride - 1)), k = i + stride;
        const Key a = keys[i], b = keys[k];
        if ((a > b) == ((i & size) == 0)) {
          keys[i] = b;
          keys[k] = a;
        }
      }
      // Up to a stride of 32 the pairs of a warp are its own 64 keys.
      const Count next = stride > 1 ? stride / 2 : size;
      if (stride > kWarp || next > kWarp)
        __syncthreads();
      else
        __syncwarp();
    }
  __syncthreads();
}

/// How many of the sorted keys [count], count a power of two, are below `key`.
template <typename Key>
__device__ __forceinline__ CountOf<Key> keys_below(const Key* keys, CountOf<Key> count, Key key) {
  CountOf<Key> at = 0;
  for (CountOf<Key> step = count / 2; step > 0; step /= 2)
    if (keys[at + step - 1] < key) at += step;
  return at + (keys[at] < key ? 1 : 0);
}

}  // namespace compact::cuda
