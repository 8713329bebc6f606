#include "kernels/piece_sum_cpu.h"

namespace compact::cpu::COMPACT_ISA {

namespace {

constexpr std::int64_t kBlock = 1024;  // elements whose sums stay in the first-level cache

[[gnu::always_inline]] inline float wide(float x) { return x; }
[[gnu::always_inline]] inline float wide(Bf16 x) { return to_float(x); }
[[gnu::always_inline]] inline double wide(double x) { return x; }
[[gnu::always_inline]] inline void narrow(float& to, float x) { to = x; }
[[gnu::always_inline]] inline void narrow(Bf16& to, float x) { to = nearest_bf16(x); }
[[gnu::always_inline]] inline void narrow(double& to, double x) { to = x; }

template <typename Sum, typename T>
void sum(const T* const* pieces, std::int64_t count, T* out, std::int64_t n) {
  Sum sums[kBlock];
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t rest = n - at, size = rest < kBlock ? rest : kBlock;
    const T* first = pieces[0] + at;
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) sums[i] = wide(first[i]);
    for (std::int64_t k = 1; k < count; ++k) {
      const T* piece = pieces[k] + at;
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) sums[i] += wide(piece[i]);
    }
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) narrow(out[at + i], sums[i]);
  }
}

}  // namespace

void sum_pieces(const float* const* pieces, std::int64_t count, float* out, std::int64_t n) {
  sum<float>(pieces, count, out, n);
}
void sum_pieces(const Bf16* const* pieces, std::int64_t count, Bf16* out, std::int64_t n) {
  sum<float>(pieces, count, out, n);
}
void sum_pieces(const double* const* pieces, std::int64_t count, double* out, std::int64_t n) {
  sum<double>(pieces, count, out, n);
}

}  // namespace compact::cpu::COMPACT_ISA
