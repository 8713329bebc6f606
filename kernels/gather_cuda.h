#pragma once
#include <cstdint>
#include <type_traits>

#include "kernels/fours_cuda.h"

/// Some rows of a matrix, turned on their side in shared memory: one granule of 16 or 8 bytes for each column
/// holds that column of all the rows, so that a thread which wants any column reads it for all of them at
/// once. Or, with no granule (kBytes 0), the same rows where they are.
namespace compact::cuda {

/// Dynamic shared memory that a block takes on any card.
inline constexpr std::int64_t kGatherBytes = 96 * 1024;

/// A matrix [rows, cols], `pairs`: two neighbours of a row from an even column on are 4 bytes, aligned.
template <typename T>
struct Source {
  const T* data;
  std::int64_t ld, rows, cols;
  std::uint64_t pairs;
};
template <typename T>
Source<T> source(const Tensor& t) {
  const bool pairs = reinterpret_cast<std::uintptr_t>(t.data) % 4 == 0 && (t.ld % 2 == 0 || t.rows() <= 1);
  return {t.as<T>(), t.ld, t.rows(), t.cols(), pairs ? 1u : 0u};
}

/// Bytes of a granule for this many columns and a column of zeros; 0 where they would not fit.
inline int granule_bytes(std::int64_t cols) {
  return (cols + 1) * 16 <= kGatherBytes ? 16 : (cols + 1) * 8 <= kGatherBytes ? 8 : 0;
}
/// Calls f with that number as a constant.
template <typename F>
void by_granule(std::int64_t cols, F&& f) {
  const int bytes = granule_bytes(cols);
  if (bytes == 16) f(std::integral_constant<int, 16>{});
  if (bytes == 8) f(std::integral_constant<int, 8>{});
  if (bytes == 0) f(std::integral_constant<int, 0>{});
}

template <typename T, int kBytes>
struct Gather {
  static constexpr int kRows = (kBytes == 0 ? 16 : kBytes) / static_cast<int>(sizeof(T));
  static constexpr int kWords = (kBytes == 0 ? 16 : kBytes) / 4;
  using Granule = std::conditional_t<kBytes == 8, uint2, uint4>;

  const unsigned char* granules;  // [cols + 1], the last one zeros
  const Source<T>& from;
  std::int64_t row;
  int rows;

  /// All threads of the block: rows [row, row + kRows), as far as they are there, into `shared`. The block
  /// has met when it returns.
  __device__ Gather(unsigned char* shared, const Source<T>& matrix, std::int64_t first_row)
      : granules(shared),
        from(matrix),
        row(first_row),
        rows(matrix.rows - first_row < kRows ? static_cast<int>(matrix.rows - first_row) : kRows) {
    if constexpr (kBytes != 0) {
      constexpr int kColumns = 4 / static_cast<int>(sizeof(T));  // read at once
      const int cols = static_cast<int>(from.cols);
      for (int j = kColumns * static_cast<int>(threadIdx.x); j < cols;
           j += kColumns * static_cast<int>(blockDim.x))
        stage(shared, j, cols);
      if (threadIdx.x == 0) store(shared, cols, {});
      __syncthreads();
    }
  }

  /// sum[k] += the element of row k and this column, or -= where `negative`; nothing for the column behind
  /// the last one.
  __device__ __forceinline__ void add(float (&sum)[kRows], std::uint32_t column, bool negative) const {
    if constexpr (kBytes == 0) {
      if (column >= from.cols) return;
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (k < rows) {
          const float x = to_float(from.data[(row + k) * from.ld + column]);
          sum[k] += negative ? -x : x;
        }
    } else {
      const auto granule = load_vector<Granule>(granules + column * std::uint32_t{kBytes});
      std::uint32_t words[kWords];
      __builtin_memcpy(words, &granule, kBytes);
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        if constexpr (std::is_same_v<T, float>) {
          sum[k] += __builtin_bit_cast(float, words[k] ^ (negative ? 0x80000000u : 0u));
        } else {
          const std::uint32_t pair = words[k] ^ (negative ? 0x80008000u : 0u);
          sum[2 * k] += low_bf16(pair);
          sum[2 * k + 1] += __builtin_bit_cast(float, pair & 0xFFFF0000u);
        }
      }
    }
  }

 private:
  static __device__ __forceinline__ void store(unsigned char* shared, int column,
                                               const std::uint32_t (&words)[kWords]) {
    Granule granule;
    __builtin_memcpy(&granule, words, kBytes);
    store_vector(shared + column * kBytes, granule);
  }

  /// Column j, or, in bf16, j and j + 1.
  __device__ __forceinline__ void stage(unsigned char* shared, int j, int cols) const {
    const T* at = from.data + row * from.ld + j;
    std::uint32_t words[kWords] = {};
    if constexpr (std::is_same_v<T, float>) {
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (k < rows) words[k] = __builtin_bit_cast(std::uint32_t, at[k * from.ld]);
      store(shared, j, words);
    } else {
      std::uint32_t next[kWords] = {};
      const bool both = j + 1 < cols, pairs = both && from.pairs != 0;
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (k < rows) {
          const T* element = at + k * from.ld;
          const std::uint32_t pair =
              pairs ? load_vector<std::uint32_t>(element)
                    : element[0].bits | (both ? std::uint32_t{element[1].bits} << 16 : 0u);
          words[k / 2] |= k % 2 == 0 ? pair & 0xFFFFu : pair << 16;
          next[k / 2] |= k % 2 == 0 ? pair >> 16 : pair & 0xFFFF0000u;
        }
      // Threads whose granules lie 128 bytes apart take their two in another order: no bank is met twice.
      const bool swapped = (j * kBytes & 128) != 0;
      if (swapped && both) store(shared, j + 1, next);
      store(shared, j, words);
      if (!swapped && both) store(shared, j + 1, next);
    }
  }
};

}  // namespace compact::cuda
