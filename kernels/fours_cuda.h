#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "compact/core/tensor.h"
#include "kernels/launch_cuda.h"

/// Four neighbouring elements of a row, which share one block of random words, as kernels read and write
/// them.
namespace compact::cuda {

struct Four {
  float x[4];
};

/// True where every group of four elements that starts at a multiple of four is a vector in memory.
inline bool has_fours(const Tensor& t) {
  return reinterpret_cast<std::uintptr_t>(t.data) % static_cast<std::uintptr_t>(4 * size_of(t.dtype)) == 0 &&
         (t.ld % 4 == 0 || t.rows() <= 1);
}

/// True where every group of eight elements that starts at a multiple of eight is aligned to 16 bytes.
inline bool has_eights(const Tensor& t) {
  return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 &&
         (t.ld * size_of(t.dtype) % 16 == 0 || t.rows() <= 1);
}

/// The first `count` of four; zeros for the others. `vector`: there are four, and they are one vector.
__device__ __forceinline__ Four load_four(const float* from, bool vector, std::int64_t count) {
  Four four{};
  if (vector) {
    const float4 v = load_vector<float4>(from);
    four = {{v.x, v.y, v.z, v.w}};
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (k < count) four.x[k] = from[k];
  }
  return four;
}
__device__ __forceinline__ float low_bf16(std::uint32_t pair) {
  return to_float(Bf16{static_cast<std::uint16_t>(pair)});
}
__device__ __forceinline__ float high_bf16(std::uint32_t pair) {
  return to_float(Bf16{static_cast<std::uint16_t>(pair >> 16)});
}
__device__ __forceinline__ Four load_four(const Bf16* from, bool vector, std::int64_t count) {
  Four four{};
  if (vector) {
    const uint2 v = load_vector<uint2>(from);
    four = {{low_bf16(v.x), high_bf16(v.x), low_bf16(v.y), high_bf16(v.y)}};
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (k < count) four.x[k] = to_float(from[k]);
  }
  return four;
}

/// How an element takes its new value: kept exactly, rounded to nearest, or by its random word.
__device__ __forceinline__ void put_random(float& to, float x, std::uint32_t) { to = x; }
__device__ __forceinline__ void put_random(Bf16& to, float x, std::uint32_t word) {
  to = stochastic_bf16(x, word);
}

template <typename T>
struct FourOf {
  T x[4];
};
__device__ __forceinline__ void store_four(float* to, const FourOf<float>& four, bool vector,
                                           std::int64_t count) {
  if (vector) return store_vector(to, make_float4(four.x[0], four.x[1], four.x[2], four.x[3]));
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (k < count) to[k] = four.x[k];
}
__device__ __forceinline__ void store_four(Bf16* to, const FourOf<Bf16>& four, bool vector,
                                           std::int64_t count) {
  const auto pair = [&](int k) { return four.x[k].bits | std::uint32_t{four.x[k + 1].bits} << 16; };
  if (vector) return store_vector(to, make_uint2(pair(0), pair(2)));
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (k < count) to[k] = four.x[k];
}

}  // namespace compact::cuda
