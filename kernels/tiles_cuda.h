#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "compact/core/bf16.h"
#include "compact/core/tensor.h"
#include "kernels/launch_cuda.h"

/// How kernels that work on each element of matrices go over them: a thread takes kUnroll items of one row,
/// an item being a vector of up to 16 bytes, and neighbouring threads neighbouring items.
namespace compact::cuda {

// ---- vectors of elements --------------------------------------------------------------------------------

/// The type that moves so many bytes at once.
template <int kBytes>
struct MovedAs;
template <>
struct MovedAs<16> {
  using type = uint4;
};
template <>
struct MovedAs<8> {
  using type = uint2;
};
template <>
struct MovedAs<4> {
  using type = std::uint32_t;
};
template <>
struct MovedAs<2> {
  using type = std::uint16_t;
};

template <typename T, int kCount>
struct Elements {
  T at[kCount];
};

/// kCount neighbours, at an address that is a multiple of their bytes.
template <int kCount, typename T>
__device__ __forceinline__ Elements<T, kCount> load_elements(const T* from) {
  return __builtin_bit_cast(Elements<T, kCount>,
                            load_vector<typename MovedAs<kCount * sizeof(T)>::type>(from));
}
/// Writes to[at], to[at + 1], ...
template <int kCount, typename T>
__device__ __forceinline__ void store_elements(T* to, std::int64_t at, const Elements<T, kCount>& elements) {
  store_vector(to + at, __builtin_bit_cast(typename MovedAs<kCount * sizeof(T)>::type, elements));
}

/// True where every row of `t` is a number of whole vectors of `count` elements at aligned addresses.
inline bool takes_vectors(const Tensor& t, std::int64_t count) {
  return t.cols() % count == 0 && t.ld % count == 0 &&
         reinterpret_cast<std::uintptr_t>(t.data) % static_cast<std::uintptr_t>(count * size_of(t.dtype)) ==
             0;
}

// ---- who takes which ------------------------------------------------------------------------------------

inline constexpr int kTileThreads = 256;

/// A matrix [rows, items] cut into tiles, one for each block: blockDim.y rows of blockDim.x · kUnroll items.
template <int kUnroll>
struct Tiles {
  std::int64_t rows, items, pieces;  // pieces of a row

  Tiles(std::int64_t rows_, std::int64_t items_)
      : rows(rows_), items(items_), pieces((items + kUnroll * wide() - 1) / (kUnroll * wide())) {}

  /// Threads side by side: 8 to 256, a power of two, so that few of a narrow row are idle.
  std::int64_t wide() const {
    const std::int64_t needed = std::clamp<std::int64_t>((items + kUnroll - 1) / kUnroll, 8, kTileThreads);
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(needed)));
  }
  Launch launch(std::string_view op) const {
    const std::int64_t high = kTileThreads / wide();
    return {op, blocks_for(rows, high) * static_cast<unsigned>(pieces),
            dim3(static_cast<unsigned>(wide()), static_cast<unsigned>(high))};
  }

  /// The present thread's row and first item; the others follow blockDim.x items apart. Either may lie
  /// outside.
  __device__ std::int64_t row() const {
    return std::int64_t{blockIdx.x / static_cast<unsigned>(pieces)} * blockDim.y + threadIdx.y;
  }
  __device__ std::int64_t item() const {
    return std::int64_t{blockIdx.x % static_cast<unsigned>(pieces)} * (kUnroll * blockDim.x) + threadIdx.x;
  }
};

}  // namespace compact::cuda
