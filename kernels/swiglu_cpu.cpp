#include "kernels/swiglu_cpu.h"

#include "kernels/element_loops.h"
#include "kernels/vector_math.h"

namespace compact::cpu::COMPACT_ISA {

namespace {

template <typename T>
void forward(const T* gate_up, std::int64_t ldg, T* out, std::int64_t ldo, T* activation, std::int64_t lda,
             std::int64_t N, std::int64_t F) {
#pragma omp parallel for schedule(static) if (N * F > 4096)
  for (std::int64_t n = 0; n < N; ++n) {
    const T *gate = gate_up + n * ldg, *up = gate + F;
    if (activation == nullptr)
      map(
          F, out + n * ldo,
          [](float g, float u) __attribute__((always_inline)) { return g * vsigmoid(g) * u; }, gate, up);
    else
      map_two(
          F, activation + n * lda, out + n * ldo, [](float g, float u) __attribute__((always_inline)) {
            const float silu = g * vsigmoid(g);
            return TwoFloats{silu, silu * u};
          },
          gate, up);
  }
}

/// silu'(g) = s (1 + g (1 - s)) = s + silu (1 - s), s = sigmoid(g).
[[gnu::always_inline]] inline float silu_slope(float silu, float s) {
  return __builtin_fmaf(silu, 1.0f - s, s);
}

/// x as it would come back from a tensor of T.
template <typename T>
[[gnu::always_inline]] inline float rounded(float x) {
  if constexpr (sizeof(T) == sizeof(float))
    return x;
  else
    return high_of(nearest_upper(x));
}

template <typename T>
void backward(const T* gate_up, std::int64_t ldg, const T* activation, std::int64_t lda, const T* dout,
              std::int64_t ldo, T* dgate_up, std::int64_t ldd, T* product, std::int64_t ldp, std::int64_t N,
              std::int64_t F) {
  // dgate_up may be gate_up, product may be dout: each element is read before it is written, and by the same
  // iteration.
#pragma omp parallel for schedule(static) if (N * F > 4096)
  for (std::int64_t n = 0; n < N; ++n) {
    const T *gate = gate_up + n * ldg, *up = gate + F, *d = dout + n * ldo;
    T *dgate = dgate_up + n * ldd, *dup = dgate + F;
    const auto gradient = [](float g, float u, float dy) __attribute__((always_inline)) {
      const float s = vsigmoid(g), silu = g * s;
      return ThreeFloats{dy * u * silu_slope(silu, s), dy * rounded<T>(silu), silu * u};
    };
    const auto with_activation = [](float g, float u, float dy, float a) __attribute__((always_inline)) {
      const float s = vsigmoid(g), silu = g * s;
      return ThreeFloats{dy * u * silu_slope(silu, s), dy * a, silu * u};
    };
    if (product != nullptr && activation != nullptr)
      map_three(F, dgate, dup, product + n * ldp, with_activation, gate, up, d, activation + n * lda);
    else if (product != nullptr)
      map_three(F, dgate, dup, product + n * ldp, gradient, gate, up, d);
    else if (activation != nullptr)
      map_two(F, dgate, dup, with_activation, gate, up, d, activation + n * lda);
    else
      map_two(F, dgate, dup, gradient, gate, up, d);
  }
}

}  // namespace

void swiglu_forward(const float* gate_up, std::int64_t ldg, float* out, std::int64_t ldo, float* activation,
                    std::int64_t lda, std::int64_t N, std::int64_t F) {
  forward(gate_up, ldg, out, ldo, activation, lda, N, F);
}
void swiglu_forward(const Bf16* gate_up, std::int64_t ldg, Bf16* out, std::int64_t ldo, Bf16* activation,
                    std::int64_t lda, std::int64_t N, std::int64_t F) {
  forward(gate_up, ldg, out, ldo, activation, lda, N, F);
}

void swiglu_backward(const float* gate_up, std::int64_t ldg, const float* activation, std::int64_t lda,
                     const float* dout, std::int64_t ldo, float* dgate_up, std::int64_t ldd, float* product,
                     std::int64_t ldp, std::int64_t N, std::int64_t F) {
  backward(gate_up, ldg, activation, lda, dout, ldo, dgate_up, ldd, product, ldp, N, F);
}
void swiglu_backward(const Bf16* gate_up, std::int64_t ldg, const Bf16* activation, std::int64_t lda,
                     const Bf16* dout, std::int64_t ldo, Bf16* dgate_up, std::int64_t ldd, Bf16* product,
                     std::int64_t ldp, std::int64_t N, std::int64_t F) {
  backward(gate_up, ldg, activation, lda, dout, ldo, dgate_up, ldd, product, ldp, N, F);
}

}  // namespace compact::cpu::COMPACT_ISA
