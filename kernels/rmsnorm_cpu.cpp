#include "kernels/rmsnorm_cpu.h"

#include "kernels/element_loops.h"

namespace compact::cpu::COMPACT_ISA {

namespace {

// Not inlined: one body for both callers, so that the fused form gives the bits of the plain one.
template <typename T>
[[gnu::noinline]] float norm_row(const T* x, const T* w, float eps, T* y, std::int64_t C) {
  const float squares = sum_of(
      C, [](float value) __attribute__((always_inline)) { return value * value; }, x);
  const float rstd = 1.0f / __builtin_sqrtf(squares / static_cast<float>(C) + eps);
  map(
      C, y, [=](float value, float weight) __attribute__((always_inline)) { return value * rstd * weight; },
      x, w);
  return rstd;
}

// dx += rstd (dy w - x̂ mean(dy w x̂)), the sums for dw += dy x̂, x̂ = x rstd.
[[gnu::always_inline]] inline float move(float dy, float x, float w, float dx, float rstd, float mean,
                                         float& sum) {
  const float normal = x * rstd;
  sum += dy * normal;
  return dx + rstd * (dy * w - normal * mean);
}

void backward_elements(const float* dy, const float* x, const float* w, float rstd, float mean, float* dx,
                       float* sums, std::int64_t C) {
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) dx[c] = move(dy[c], x[c], w[c], dx[c], rstd, mean, sums[c]);
}

void backward_elements(const Bf16* dy, const Bf16* x, const Bf16* w, float rstd, float mean, Bf16* dx,
                       float* sums, std::int64_t C) {
  const auto *p = reinterpret_cast<const Bf16Pair*>(dy), *q = reinterpret_cast<const Bf16Pair*>(x),
             *v = reinterpret_cast<const Bf16Pair*>(w);
  auto* d = reinterpret_cast<Bf16Pair*>(dx);
  float* odd = sums + (C + 1) / 2;
#pragma omp simd
  for (std::int64_t k = 0; k < C / 2; ++k)
    d[k] = pair_of(move(low_of(p[k]), low_of(q[k]), low_of(v[k]), low_of(d[k]), rstd, mean, sums[k]),
                   move(high_of(p[k]), high_of(q[k]), high_of(v[k]), high_of(d[k]), rstd, mean, odd[k]));
  const std::int64_t c = C - 1;
  if (C % 2 != 0)
    put(dx[c],
        move(to_float(dy[c]), to_float(x[c]), to_float(w[c]), to_float(dx[c]), rstd, mean, sums[c / 2]));
}

template <typename T>
void backward_row(const T* dy, const T* x, const T* w, float rstd, T* dx, float* sums, std::int64_t C) {
  const float dot = sum_of(
      C,
      [=](float d, float weight, float value)
          __attribute__((always_inline)) { return d * weight * (value * rstd); },
      dy, w, x);
  backward_elements(dy, x, w, rstd, dot / static_cast<float>(C), dx, sums, C);
}

template <typename T>
void forward(const T* x, std::int64_t ldx, const T* delta, std::int64_t ldd, T* sum, std::int64_t lds,
             const T* w, float eps, T* y, std::int64_t ldy, float* rstd, std::int64_t N, std::int64_t C) {
#pragma omp parallel for schedule(static) if (N * C > 16384)
  for (std::int64_t n = 0; n < N; ++n) {
    const T* row = x + n * ldx;
    if (delta != nullptr) {
      T* s = sum + n * lds;
      map(
          C, s, [](float a, float b) __attribute__((always_inline)) { return a + b; }, row, delta + n * ldd);
      row = s;
    }
    rstd[n] = norm_row(row, w, eps, y + n * ldy, C);
  }
}

template <typename T>
void backward(const T* dy, std::int64_t ldy, const T* x, std::int64_t ldx, const T* w, const float* rstd,
              T* dx, std::int64_t ldd, float* partial, std::int64_t chunks, std::int64_t N, std::int64_t C) {
#pragma omp parallel for schedule(static) if (N * C > 16384)
  for (std::int64_t i = 0; i < chunks; ++i) {
    float* sums = partial + i * C;
#pragma omp simd
    for (std::int64_t c = 0; c < C; ++c) sums[c] = 0;
    for (std::int64_t n = N * i / chunks; n < N * (i + 1) / chunks; ++n)
      backward_row(dy + n * ldy, x + n * ldx, w, rstd[n], dx + n * ldd, sums, C);
  }
}

template <typename T>
void add_dw(float* partial, std::int64_t chunks, std::int64_t C, bool even_first, T* dw) {
  for (std::int64_t i = 1; i < chunks; ++i)
    map(
        C, partial, [](float a, float b) __attribute__((always_inline)) { return a + b; }, partial,
        partial + i * C);
  const auto add = [=](T & to, float sum) __attribute__((always_inline)) { put(to, to_float(to) + sum); };
  if (even_first) {
    for (std::int64_t c = 0; c < C; ++c) add(dw[c], partial[c / 2 + c % 2 * ((C + 1) / 2)]);
  } else {
    for (std::int64_t c = 0; c < C; ++c) add(dw[c], partial[c]);
  }
}

}  // namespace

void rmsnorm_forward(const float* x, std::int64_t ldx, const float* delta, std::int64_t ldd, float* sum,
                     std::int64_t lds, const float* w, float eps, float* y, std::int64_t ldy, float* rstd,
                     std::int64_t N, std::int64_t C) {
  forward(x, ldx, delta, ldd, sum, lds, w, eps, y, ldy, rstd, N, C);
}
void rmsnorm_forward(const Bf16* x, std::int64_t ldx, const Bf16* delta, std::int64_t ldd, Bf16* sum,
                     std::int64_t lds, const Bf16* w, float eps, Bf16* y, std::int64_t ldy, float* rstd,
                     std::int64_t N, std::int64_t C) {
  forward(x, ldx, delta, ldd, sum, lds, w, eps, y, ldy, rstd, N, C);
}

void rmsnorm_backward(const float* dy, std::int64_t ldy, const float* x, std::int64_t ldx, const float* w,
                      const float* rstd, float* dx, std::int64_t ldd, float* partial, std::int64_t chunks,
                      std::int64_t N, std::int64_t C) {
  backward(dy, ldy, x, ldx, w, rstd, dx, ldd, partial, chunks, N, C);
}
void rmsnorm_backward(const Bf16* dy, std::int64_t ldy, const Bf16* x, std::int64_t ldx, const Bf16* w,
                      const float* rstd, Bf16* dx, std::int64_t ldd, float* partial, std::int64_t chunks,
                      std::int64_t N, std::int64_t C) {
  backward(dy, ldy, x, ldx, w, rstd, dx, ldd, partial, chunks, N, C);
}

void rmsnorm_add_dw(float* partial, std::int64_t chunks, std::int64_t C, bool even_first, float* dw) {
  add_dw(partial, chunks, C, even_first, dw);
}
void rmsnorm_add_dw(float* partial, std::int64_t chunks, std::int64_t C, bool even_first, Bf16* dw) {
  add_dw(partial, chunks, C, even_first, dw);
}

}  // namespace compact::cpu::COMPACT_ISA
