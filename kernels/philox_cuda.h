#pragma once
#include <cuda_runtime.h>
#include <curand_philox4x32_x.h>

#include <cstdint>

namespace compact::cuda {

/// Philox 4x32-10 as in compact/core/philox.h: the four words of a counter.
__device__ __forceinline__ uint4 philox_words(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                                              std::uint32_t c3, std::uint64_t key) {
  return curand_Philox4x32_10(make_uint4(c0, c1, c2, c3), make_uint2(static_cast<std::uint32_t>(key),
                                                                     static_cast<std::uint32_t>(key >> 32)));
}

}  // namespace compact::cuda
