#include "kernels/normal_cpu.h"

#include "kernels/normal_math.h"

namespace compact::cpu::COMPACT_ISA {

namespace {
constexpr int kLanes = 16;  // Philox blocks made together
constexpr int kGroup = 4 * kLanes;

inline void philox_round(std::uint32_t& c0, std::uint32_t& c1, std::uint32_t& c2, std::uint32_t& c3,
                         std::uint32_t& k0, std::uint32_t& k1) {
  const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
  c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
  c1 = static_cast<std::uint32_t>(p1);
  c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
  c3 = static_cast<std::uint32_t>(p0);
  k0 += 0x9E3779B9u;
  k1 += 0xBB67AE85u;
}

/// 64 neighbouring deviates of one row, times scale: the blocks first .. first + 15. The same function as
/// `philox` of core/philox.h, lane by lane.
inline void normal_group(float* out, std::uint32_t first, std::uint32_t row, std::uint32_t word2,
                         std::uint32_t word3, std::uint64_t key, float scale) {
#pragma omp simd simdlen(16)
  for (int lane = 0; lane < kLanes; ++lane) {
    std::uint32_t c0 = first + static_cast<std::uint32_t>(lane), c1 = row, c2 = word2, c3 = word3;
    std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    // Ten rounds, written out: a loop in here would keep this one from being vectorised.
    philox_round(c0, c1, c2, c3, k0, k1), philox_round(c0, c1, c2, c3, k0, k1);
    philox_round(c0, c1, c2, c3, k0, k1), philox_round(c0, c1, c2, c3, k0, k1);
    philox_round(c0, c1, c2, c3, k0, k1), philox_round(c0, c1, c2, c3, k0, k1);
    philox_round(c0, c1, c2, c3, k0, k1), philox_round(c0, c1, c2, c3, k0, k1);
    philox_round(c0, c1, c2, c3, k0, k1), philox_round(c0, c1, c2, c3, k0, k1);
    float n0, n1, n2, n3;
    normal_pair(c0, c1, n0, n1);
    normal_pair(c2, c3, n2, n3);
    out[4 * lane] = scale * n0;
    out[4 * lane + 1] = scale * n1;
    out[4 * lane + 2] = scale * n2;
    out[4 * lane + 3] = scale * n3;
  }
}
}  // namespace

void normal_rows(float* out, std::int64_t ld, std::int64_t first_row, std::int64_t rows, std::int64_t cols,
                 float scale, std::uint64_t key, std::uint32_t word2, std::uint32_t word3) {
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::uint32_t row = static_cast<std::uint32_t>(first_row + i);
    float* at = out + i * ld;
    std::int64_t j = 0;
    for (; j + kGroup <= cols; j += kGroup)
      normal_group(at + j, static_cast<std::uint32_t>(j / 4), row, word2, word3, key, scale);
    if (j < cols) {
      float tail[kGroup];
      normal_group(tail, static_cast<std::uint32_t>(j / 4), row, word2, word3, key, scale);
      for (std::int64_t t = j; t < cols; ++t) at[t] = tail[t - j];
    }
  }
}

}  // namespace compact::cpu::COMPACT_ISA
