#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "compact/core/bf16.h"
#include "compact/core/tensor.h"
#include "kernels/launch_cuda.h"
#include "kernels/mma_cuda.h"

/// Rows of F32 or BF16 taken 16 bytes at a time: a pack is kPack<T> neighbours of a row.
namespace compact::cuda {

template <typename T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

/// Packs of a row of `cols` elements; the last may be short.
template <typename T>
COMPACT_HOST_DEVICE constexpr std::int64_t packs_of(std::int64_t cols) {
  return (cols + kPack<T> - 1) / kPack<T>;
}

/// True where all packs of the view are whole and lie at multiples of 16 bytes.
inline bool in_packs(const Tensor& t) {
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(t.data));
  const std::int64_t bytes = size_of(t.dtype);
  return address % 16 == 0 && t.ld * bytes % 16 == 0 && t.cols() * bytes % 16 == 0;
}

/// The bits of a pack's elements, those that are not there 0.
template <typename T>
struct Pack {
  std::uint32_t words[4];

  __device__ __forceinline__ void floats(float (&to)[kPack<T>]) const {
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == 4) {
        to[i] = __builtin_bit_cast(float, words[i]);
      } else {
        to[2 * i] = __builtin_bit_cast(float, words[i] << 16);
        to[2 * i + 1] = __builtin_bit_cast(float, words[i] & 0xFFFF0000u);
      }
    }
  }
  /// Rounded to nearest.
  static __device__ __forceinline__ Pack of(const float (&from)[kPack<T>]) {
    Pack pack;
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == 4)
        pack.words[i] = __builtin_bit_cast(std::uint32_t, from[i]);
      else
        pack.words[i] = pack_bf16(from[2 * i], from[2 * i + 1]);
    }
    return pack;
  }
};

/// Elements [column, column + kPack<T>) of a row that ends at `cols`; by one access where `whole`, which is
/// what in_packs said of the view, or by one for each element.
template <typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* row, std::int64_t column, std::int64_t cols,
                                             bool whole) {
  if (whole) {
    const uint4 v = load_vector<uint4>(row + column);
    return {{v.x, v.y, v.z, v.w}};
  }
  Pack<T> pack = {{0, 0, 0, 0}};
  for (int i = 0; i < kPack<T>; ++i) {
    if (column + i >= cols) continue;
    if constexpr (sizeof(T) == 4)
      pack.words[i] = __builtin_bit_cast(std::uint32_t, row[column + i]);
    else
      pack.words[i / 2] |= static_cast<std::uint32_t>(row[column + i].bits) << 16 * (i % 2);
  }
  return pack;
}

template <typename T>
__device__ __forceinline__ void store_pack(T* row, std::int64_t column, std::int64_t cols, bool whole,
                                           const Pack<T>& pack) {
  if (whole)
    return store_vector(row + column, make_uint4(pack.words[0], pack.words[1], pack.words[2], pack.words[3]));
  for (int i = 0; i < kPack<T>; ++i) {
    if (column + i >= cols) continue;
    if constexpr (sizeof(T) == 4)
      row[column + i] = __builtin_bit_cast(float, pack.words[i]);
    else
      row[column + i].bits = static_cast<std::uint16_t>(pack.words[i / 2] >> 16 * (i % 2));
  }
}

/// row = i / cols, column = i % cols; i < 2^32 takes the short division.
__device__ __forceinline__ void row_and_column(std::int64_t i, std::int64_t cols, std::int64_t& row,
                                               std::int64_t& column) {
  if ((static_cast<std::uint64_t>(i | cols) >> 32) == 0) {
    const std::uint32_t small = static_cast<std::uint32_t>(i), n = static_cast<std::uint32_t>(cols);
    row = small / n;
    column = small % n;
  } else {
    row = i / cols;
    column = i % cols;
  }
}

}  // namespace compact::cuda
