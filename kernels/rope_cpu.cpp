#include "kernels/rope_cpu.h"

namespace compact::cpu::COMPACT_ISA {

namespace {

template <typename T>
[[gnu::always_inline]] inline void turn_head(T* low, T* high, const float* cosine, const float* sine,
                                             float sign, std::int64_t half) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = to_float(low[i]), b = to_float(high[i]), s = sign * sine[i];
    put(low[i], a * cosine[i] - b * s);
    put(high[i], b * cosine[i] + a * s);
  }
}

template <typename E>
void turn_rows(E* x, std::int64_t ldx, std::int64_t N, std::int64_t heads, std::int64_t D, std::int64_t T,
               std::int64_t first, const float* table, std::int64_t ldt, float sign) {
  const std::int64_t half = D / 2;
#pragma omp parallel for schedule(static) if (N * heads * D > 16384)
  for (std::int64_t n = 0; n < N; ++n) {
    const std::int64_t position = first + n % T;
    if (position == 0) continue;  // no turn: also -0 and NaN keep their bits
    const float *cosine = table + position * ldt, *sine = cosine + half;
    E* row = x + n * ldx;
    // The usual width as a constant: its short loops are then unrolled.
    if (half == 32)
      for (std::int64_t h = 0; h < heads; ++h)
        turn_head(row + h * 64, row + h * 64 + 32, cosine, sine, sign, 32);
    else
      for (std::int64_t h = 0; h < heads; ++h)
        turn_head(row + h * D, row + h * D + half, cosine, sine, sign, half);
  }
}

}  // namespace

void rope(float* x, std::int64_t ldx, std::int64_t N, std::int64_t heads, std::int64_t D, std::int64_t T,
          std::int64_t first, const float* table, std::int64_t ldt, float sign) {
  turn_rows(x, ldx, N, heads, D, T, first, table, ldt, sign);
}
void rope(Bf16* x, std::int64_t ldx, std::int64_t N, std::int64_t heads, std::int64_t D, std::int64_t T,
          std::int64_t first, const float* table, std::int64_t ldt, float sign) {
  turn_rows(x, ldx, N, heads, D, T, first, table, ldt, sign);
}

}  // namespace compact::cpu::COMPACT_ISA
