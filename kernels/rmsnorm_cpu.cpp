#include "kernels/rmsnorm_cpu.h"

namespace compact::cpu::COMPACT_ISA {

namespace {

// Not inlined: one body for both callers, so that the fused form gives the bits of the plain one.
[[gnu::noinline]] float norm_row(const float* x, const float* w, float eps, float* y, std::int64_t C) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t c = 0; c < C; ++c) squares += x[c] * x[c];
  const float rstd = 1.0f / __builtin_sqrtf(squares / static_cast<float>(C) + eps);
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) y[c] = x[c] * rstd * w[c];
  return rstd;
}

// dx += rstd (dy w - x̂ mean(dy w x̂)), dw += dy x̂, x̂ = x rstd.
void backward_row(const float* dy, const float* x, const float* w, float rstd, float* dx, float* dw,
                  std::int64_t C) {
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t c = 0; c < C; ++c) dot += dy[c] * w[c] * (x[c] * rstd);
  const float mean = dot / static_cast<float>(C);
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) {
    const float normal = x[c] * rstd;
    dw[c] += dy[c] * normal;
    dx[c] += rstd * (dy[c] * w[c] - normal * mean);
  }
}

}  // namespace

void rmsnorm_forward(const float* x, std::int64_t ldx, const float* delta, std::int64_t ldd, float* sum,
                     std::int64_t lds, const float* w, float eps, float* y, std::int64_t ldy, float* rstd,
                     std::int64_t N, std::int64_t C) {
#pragma omp parallel for schedule(static) if (N * C > 16384)
  for (std::int64_t n = 0; n < N; ++n) {
    const float* row = x + n * ldx;
    if (delta != nullptr) {
      const float* d = delta + n * ldd;
      float* s = sum + n * lds;
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c) s[c] = row[c] + d[c];
      row = s;
    }
    rstd[n] = norm_row(row, w, eps, y + n * ldy, C);
  }
}

void rmsnorm_backward(const float* dy, std::int64_t ldy, const float* x, std::int64_t ldx, const float* w,
                      const float* rstd, float* dx, std::int64_t ldd, float* partial, std::int64_t chunks,
                      float* dw, std::int64_t N, std::int64_t C) {
#pragma omp parallel for schedule(static) if (N * C > 16384)
  for (std::int64_t i = 0; i < chunks; ++i) {
    float* sums = partial + i * C;
#pragma omp simd
    for (std::int64_t c = 0; c < C; ++c) sums[c] = 0;
    for (std::int64_t n = N * i / chunks; n < N * (i + 1) / chunks; ++n)
      backward_row(dy + n * ldy, x + n * ldx, w, rstd[n], dx + n * ldd, sums, C);
  }
  for (std::int64_t i = 0; i < chunks; ++i) {
    const float* sums = partial + i * C;
#pragma omp simd
    for (std::int64_t c = 0; c < C; ++c) dw[c] += sums[c];
  }
}

}  // namespace compact::cpu::COMPACT_ISA
