#include "kernels/normal_cpu.h"

#include "kernels/normal_math.h"
#include "kernels/philox_cpu.h"

namespace compact::cpu::COMPACT_ISA {

namespace {
constexpr int kLanes = 16;  // Philox blocks made together
constexpr int kGroup = 4 * kLanes;

using Wide = PhiloxLanes;
constexpr int kWide = sizeof(Wide) / 8;
typedef std::uint32_t Narrow __attribute__((vector_size(4 * kWide)));

inline Wide all(std::uint64_t x) { return Wide{} + x; }

/// words[k][lane] = word k of `philox` (core/philox.h) for the counter (first + lane, row, word2, word3).
inline void philox_group(std::uint32_t (&words)[4][kLanes], std::uint32_t first, std::uint32_t row,
                         std::uint32_t word2, std::uint32_t word3, std::uint64_t key) {
  for (int begin = 0; begin < kLanes; begin += kWide) {
    Wide c[4] = {all(0), all(row), all(word2), all(word3)};
    for (int lane = 0; lane < kWide; ++lane) c[0][lane] = first + static_cast<std::uint32_t>(begin + lane);
    PhiloxKey round_key(key);
    for (int round = 0; round < 10; ++round, round_key.advance()) philox_round(c, round_key);
    for (int k = 0; k < 4; ++k) {
      const Narrow low = __builtin_convertvector(c[k], Narrow);
      __builtin_memcpy(&words[k][begin], &low, sizeof(low));
    }
  }
}

/// 64 neighbouring deviates of one row, times scale, from the blocks first .. first + 15.
inline void normal_group(float* out, std::uint32_t first, std::uint32_t row, std::uint32_t word2,
                         std::uint32_t word3, std::uint64_t key, float scale) {
  std::uint32_t words[4][kLanes];
  philox_group(words, first, row, word2, word3, key);
#pragma omp simd simdlen(16)
  for (int lane = 0; lane < kLanes; ++lane) {
    float n0, n1, n2, n3;
    normal_pair(words[0][lane], words[1][lane], n0, n1);
    normal_pair(words[2][lane], words[3][lane], n2, n3);
    out[4 * lane] = scale * n0;
    out[4 * lane + 1] = scale * n1;
    out[4 * lane + 2] = scale * n2;
    out[4 * lane + 3] = scale * n3;
  }
}
/// n of them to where they belong, in its type.
inline void put_group(Bf16* to, const float* from, std::int64_t n) {
#pragma omp simd
  for (std::int64_t k = 0; k < n; ++k) to[k] = nearest_bf16(from[k]);
}
inline void put_group(float* to, const float* from, std::int64_t n) {
#pragma omp simd
  for (std::int64_t k = 0; k < n; ++k) to[k] = from[k];
}

template <typename T>
void make_rows(T* out, std::int64_t ld, std::int64_t first_row, std::int64_t rows, std::int64_t cols,
               float scale, std::uint64_t key, std::uint32_t word2, std::uint32_t word3) {
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::uint32_t row = static_cast<std::uint32_t>(first_row + i);
    T* at = out + i * ld;
    for (std::int64_t j = 0; j < cols; j += kGroup) {
      float group[kGroup];
      normal_group(group, static_cast<std::uint32_t>(j / 4), row, word2, word3, key, scale);
      if (j + kGroup <= cols)
        put_group(at + j, group, kGroup);
      else
        put_group(at + j, group, cols - j);
    }
  }
}
}  // namespace

void normal_rows(float* out, std::int64_t ld, std::int64_t first_row, std::int64_t rows, std::int64_t cols,
                 float scale, std::uint64_t key, std::uint32_t word2, std::uint32_t word3) {
  make_rows(out, ld, first_row, rows, cols, scale, key, word2, word3);
}
void normal_rows(Bf16* out, std::int64_t ld, std::int64_t first_row, std::int64_t rows, std::int64_t cols,
                 float scale, std::uint64_t key, std::uint32_t word2, std::uint32_t word3) {
  make_rows(out, ld, first_row, rows, cols, scale, key, word2, word3);
}

}  // namespace compact::cpu::COMPACT_ISA
