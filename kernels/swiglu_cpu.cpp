#include "kernels/swiglu_cpu.h"

#include "kernels/vector_math.h"

namespace compact::cpu::COMPACT_ISA {

void swiglu_forward(const float* gate_up, std::int64_t ldg, float* out, std::int64_t ldo, float* activation,
                    std::int64_t lda, std::int64_t N, std::int64_t F) {
#pragma omp parallel for schedule(static) if (N * F > 4096)
  for (std::int64_t n = 0; n < N; ++n) {
    const float *gate = gate_up + n * ldg, *up = gate + F;
    float* o = out + n * ldo;
    if (activation == nullptr) {
#pragma omp simd
      for (std::int64_t i = 0; i < F; ++i) o[i] = gate[i] * vsigmoid(gate[i]) * up[i];
    } else {
      float* a = activation + n * lda;
#pragma omp simd
      for (std::int64_t i = 0; i < F; ++i) {
        const float silu = gate[i] * vsigmoid(gate[i]);
        a[i] = silu;
        o[i] = silu * up[i];
      }
    }
  }
}

namespace {

/// silu'(g) = s (1 + g (1 - s)), s = sigmoid(g).
[[gnu::always_inline]] inline float silu_slope(float g, float s) { return s * (1.0f + g * (1.0f - s)); }

}  // namespace

void swiglu_backward(const float* gate_up, std::int64_t ldg, const float* activation, std::int64_t lda,
                     const float* dout, std::int64_t ldo, float* dgate_up, std::int64_t ldd, std::int64_t N,
                     std::int64_t F) {
  // dgate_up may be gate_up: each element is read before it is written, and by the same iteration.
#pragma omp parallel for schedule(static) if (N * F > 4096)
  for (std::int64_t n = 0; n < N; ++n) {
    const float *gate = gate_up + n * ldg, *up = gate + F, *d = dout + n * ldo;
    float *dgate = dgate_up + n * ldd, *dup = dgate + F;
    if (activation == nullptr) {
#pragma omp simd
      for (std::int64_t i = 0; i < F; ++i) {
        const float g = gate[i], s = vsigmoid(g), u = up[i];
        dgate[i] = d[i] * u * silu_slope(g, s);
        dup[i] = d[i] * (g * s);
      }
    } else {
      const float* a = activation + n * lda;
#pragma omp simd
      for (std::int64_t i = 0; i < F; ++i) {
        const float g = gate[i], s = vsigmoid(g), u = up[i];
        dgate[i] = d[i] * u * silu_slope(g, s);
        dup[i] = d[i] * a[i];
      }
    }
  }
}

}  // namespace compact::cpu::COMPACT_ISA
