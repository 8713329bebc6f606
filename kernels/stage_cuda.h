#pragma once
#include <cstdint>

#include "kernels/fours_cuda.h"
#include "kernels/gaussian_cuda.h"
#include "kernels/mma_cuda.h"

/// Tiles of bf16 operands on their way from global to shared memory: they are loaded (or made) into registers
/// while the tile before is multiplied, and put into the other half of a double buffer after that.
namespace compact::cuda {

inline constexpr int kStageThreads = 256;
/// Elements that a row of a tile is longer in shared memory than its `kDepth`: rows are then an odd number of
/// 16-byte units apart, and the eight rows that ldmatrix reads lie in different banks.
inline constexpr int kPad = 8;

/// A matrix of operands, its columns along the inner dimension. kAligned: every group of eight from a
/// multiple of eight on is made of 16-byte vectors.
template <typename T, bool kAligned>
struct Matrix {
  const T* data;
  std::int64_t ld, rows, cols;
};

template <typename T, bool kAligned>
Matrix<T, kAligned> matrix(const Tensor& t) {
  return {t.as<const T>(), t.ld, t.rows(), t.cols()};
}
__device__ __forceinline__ std::uint32_t bf16_bits(float x) { return nearest_bf16(x).bits; }
__device__ __forceinline__ std::uint32_t bf16_bits(Bf16 x) { return x.bits; }

__device__ __forceinline__ uint4 whole_eight(const Bf16* from) { return load_vector<uint4>(from); }
__device__ __forceinline__ uint4 whole_eight(const float* from) {
  const float4 a = load_vector<float4>(from), b = load_vector<float4>(from + 4);
  return make_uint4(pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w));
}

/// Eight from `from` on as bf16, or the first `count`, and zeros.
template <typename T>
__device__ __forceinline__ uint4 eight(const T* from, int count) {
  if (count >= 8) return whole_eight(from);
  std::uint32_t pairs[4] = {};
#pragma unroll
  for (int k = 0; k < 8; ++k)
    if (k < count) pairs[k / 2] |= bf16_bits(from[k]) << (16 * (k % 2));
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

/// Elements of P [rows, cols] made on the fly, as bf16.
__device__ __forceinline__ uint4 eight(const Gaussian& p, std::int64_t row, std::int64_t column) {
  const Four a = four_deviates(p, row, column), b = four_deviates(p, row, column + 4);
  return make_uint4(pack_bf16(a.x[0], a.x[1]), pack_bf16(a.x[2], a.x[3]), pack_bf16(b.x[0], b.x[1]),
                    pack_bf16(b.x[2], b.x[3]));
}

/// A tile of kRows x kDepth bf16 in the registers of the block's 256 threads. Where the source has vectors a
/// thread has groups of eight; else a warp has rows element by element, which is coalesced too.
template <int kRows, int kDepth>
struct Staged {
  static constexpr int kEights = kRows * kDepth / 8 / kStageThreads;
  static constexpr int kEightsOfRow = kDepth / 8, kSinglesOfRow = kDepth / kWarp;
  std::uint32_t r[4 * kEights];

  /// Where a thread's groups of eight lie, `kEightRows` rows apart; and its single elements.
  static constexpr int kEightRows = kStageThreads / kEightsOfRow, kSingleRows = kStageThreads / kWarp;
  /// With four groups in a row eight neighbouring threads take eight rows: their stores meet in no bank.
  static __device__ __forceinline__ int eight_row() {
    const int thread = static_cast<int>(threadIdx.x);
    return kEightsOfRow == 4 ? thread / 32 * 8 + thread % 8 : thread / kEightsOfRow;
  }
  static __device__ __forceinline__ int eight_column() {
    const int thread = static_cast<int>(threadIdx.x);
    return (kEightsOfRow == 4 ? thread / 8 % 4 : thread % kEightsOfRow) * 8;
  }
  static __device__ __forceinline__ int single_row() { return static_cast<int>(threadIdx.x) / kWarp; }
  static __device__ __forceinline__ int single_column() { return static_cast<int>(threadIdx.x) % kWarp; }

  __device__ __forceinline__ void set(int i, const uint4& v) {
    r[4 * i] = v.x, r[4 * i + 1] = v.y, r[4 * i + 2] = v.z, r[4 * i + 3] = v.w;
  }
  /// Of `size` from `begin` on, those in a tile of `tile` and from `own` on.
  static __device__ __forceinline__ int left(std::int64_t size, std::int64_t begin, int tile, int own) {
    const std::int64_t left = size - begin;
    return (left < tile ? static_cast<int>(left) : tile) - own;
  }

  __device__ __forceinline__ void load(const Gaussian& p, std::int64_t row, std::int64_t column) {
#pragma unroll
    for (int i = 0; i < kEights; ++i)
      set(i, eight(p, row + eight_row() + i * kEightRows, column + eight_column()));
  }
  /// The tile from (row, column) of x on; zeros outside of it.
  template <typename T>
  __device__ __forceinline__ void load(const Matrix<T, true>& x, std::int64_t row, std::int64_t column) {
    const T* from = x.data + (row + eight_row()) * x.ld + column + eight_column();
    const int rows = left(x.rows, row, kRows, eight_row()),
              columns = left(x.cols, column, kDepth, eight_column());
#pragma unroll
    for (int i = 0; i < kEights; ++i, from += kEightRows * x.ld)
      set(i, i * kEightRows < rows && columns > 0 ? eight(from, columns) : make_uint4(0, 0, 0, 0));
  }
  template <typename T>
  __device__ __forceinline__ void load(const Matrix<T, false>& x, std::int64_t row, std::int64_t column) {
    const T* from = x.data + (row + single_row()) * x.ld + column + single_column();
    const int rows = left(x.rows, row, kRows, single_row()),
              columns = left(x.cols, column, kDepth, single_column());
#pragma unroll
    for (int i = 0; i < 8 * kEights; ++i) {
      const int at_row = i / kSinglesOfRow * kSingleRows, at_column = i % kSinglesOfRow * kWarp;
      const bool inside = at_row < rows && at_column < columns;
      const std::uint32_t bits = inside ? bf16_bits(from[at_column]) : 0;
      r[i / 2] = i % 2 == 0 ? bits : r[i / 2] | bits << 16;
      if (i % kSinglesOfRow == kSinglesOfRow - 1) from += kSingleRows * x.ld;
    }
  }

  __device__ __forceinline__ void store_eights(Bf16 (*to)[kDepth + kPad]) const {
#pragma unroll
    for (int i = 0; i < kEights; ++i)
      store_vector(&to[eight_row() + i * kEightRows][eight_column()],
                   make_uint4(r[4 * i], r[4 * i + 1], r[4 * i + 2], r[4 * i + 3]));
  }
  /// To where it is multiplied.
  __device__ __forceinline__ void store(const Gaussian&, Bf16 (*to)[kDepth + kPad]) const {
    store_eights(to);
  }
  template <typename T>
  __device__ __forceinline__ void store(const Matrix<T, true>&, Bf16 (*to)[kDepth + kPad]) const {
    store_eights(to);
  }
  template <typename T>
  __device__ __forceinline__ void store(const Matrix<T, false>&, Bf16 (*to)[kDepth + kPad]) const {
#pragma unroll
    for (int i = 0; i < 8 * kEights; ++i)
      to[single_row() + i / kSinglesOfRow * kSingleRows][single_column() + i % kSinglesOfRow * kWarp].bits =
          static_cast<std::uint16_t>(r[i / 2] >> (16 * (i % 2)));
  }
};

}  // namespace compact::cuda
