#include "kernels/rope_cpu.h"

namespace compact::cpu::COMPACT_ISA {

void rope(float* x, std::int64_t ldx, std::int64_t N, std::int64_t heads, std::int64_t D, std::int64_t T,
          std::int64_t first, const float* table, std::int64_t ldt, float sign) {
  const std::int64_t half = D / 2;
#pragma omp parallel for schedule(static) if (N * heads * D > 16384)
  for (std::int64_t n = 0; n < N; ++n) {
    const std::int64_t position = first + n % T;
    if (position == 0) continue;  // no turn: also -0 and NaN keep their bits
    const float *cosine = table + position * ldt, *sine = cosine + half;
    for (std::int64_t h = 0; h < heads; ++h) {
      float *low = x + n * ldx + h * D, *high = low + half;
#pragma omp simd
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = low[i], b = high[i], s = sign * sine[i];
        low[i] = a * cosine[i] - b * s;
        high[i] = b * cosine[i] + a * s;
      }
    }
  }
}

}  // namespace compact::cpu::COMPACT_ISA
