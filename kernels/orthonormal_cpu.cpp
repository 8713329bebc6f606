#include "kernels/orthonormal_cpu.h"

#include <immintrin.h>
#include <omp.h>

namespace compact::cpu::COMPACT_ISA {

namespace {
// Sums are made in 16 parts, those of equal index modulo 16, which are then added in pairs. The same parts
// are two vectors of eight here, four of four there.
#ifdef COMPACT_ISA_IS_avx512
constexpr int kWide = 8;
typedef double Doubles __attribute__((vector_size(64)));
#else
constexpr int kWide = 4;
typedef double Doubles __attribute__((vector_size(32)));
#endif
constexpr int kParts = 16, kVectors = kParts / kWide;
constexpr std::int64_t kPanel = 32;   // reflectors that are made before the columns behind them see them
constexpr std::int64_t kColumns = 4;  // worked on together, so that a reflector is read once for them

[[gnu::always_inline]] inline Doubles load(const double* p) {
  Doubles v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
[[gnu::always_inline]] inline void store(double* p, Doubles v) { __builtin_memcpy(p, &v, sizeof(v)); }
[[gnu::always_inline]] inline Doubles fma(Doubles a, Doubles b, Doubles c) {
#ifdef COMPACT_ISA_IS_avx512
  return (Doubles)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#else
  return (Doubles)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#endif
}

[[gnu::always_inline]] inline double sum(const Doubles (&parts)[kVectors]) {
  double p[kParts];
  __builtin_memcpy(p, parts, sizeof(p));
#pragma GCC unroll 4
  for (int half = kParts / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) p[i] += p[i + half];
  return p[0];
}

/// The reflector v, whose elements before `from` (a multiple of 16) are 0, applied to `count` columns.
template <int count>
[[gnu::always_inline]] inline void reflect(const double* v, double tau, double* columns, std::int64_t ld,
                                           std::int64_t from) {
  Doubles parts[count][kVectors] = {};
  for (std::int64_t i = from; i < ld; i += kParts)
#pragma GCC unroll 4
    for (int l = 0; l < kVectors; ++l) {
      const Doubles at = load(v + i + l * kWide);
#pragma GCC unroll 4
      for (int c = 0; c < count; ++c)
        parts[c][l] = fma(at, load(columns + c * ld + i + l * kWide), parts[c][l]);
    }
  Doubles factor[count];
#pragma GCC unroll 4
  for (int c = 0; c < count; ++c) factor[c] = Doubles{} - tau * sum(parts[c]);
  for (std::int64_t i = from; i < ld; i += kWide) {
    const Doubles at = load(v + i);
#pragma GCC unroll 4
    for (int c = 0; c < count; ++c)
      store(columns + c * ld + i, fma(factor[c], at, load(columns + c * ld + i)));
  }
}

[[gnu::always_inline]] inline void reflect(const double* v, double tau, double* columns, std::int64_t ld,
                                           std::int64_t k, std::int64_t count) {
  const std::int64_t from = k / kParts * kParts;
  if (count == kColumns)
    reflect<kColumns>(v, tau, columns, ld, from);
  else
    for (std::int64_t c = 0; c < count; ++c) reflect<1>(v, tau, columns + c * ld, ld, from);
}

/// Makes of column k, x [n] from element k on, the reflector that leaves +|x| in element k: so the diagonal
/// of R is positive. Returns its factor (Golub and Van Loan, Matrix Computations, 5.1.3: no cancellation).
inline double make_reflector(double* x, std::int64_t n, std::int64_t k) {
  for (std::int64_t i = 0; i < k; ++i) x[i] = 0;
  const double first = x[k];
  x[k] = 0;
  Doubles parts[kVectors] = {};
  for (std::int64_t i = k / kParts * kParts; i < n; i += kParts)
    for (int l = 0; l < kVectors; ++l) {
      const Doubles at = load(x + i + l * kWide);
      parts[l] = fma(at, at, parts[l]);
    }
  const double rest = sum(parts);
  x[k] = 1;
  if (rest == 0) return first < 0 ? 2 : 0;
  const double norm = __builtin_sqrt(__builtin_fma(first, first, rest));
  const double v = first <= 0 ? first - norm : -rest / (first + norm);
  for (std::int64_t i = k + 1; i < n; ++i) x[i] /= v;
  return 2 * v * v / __builtin_fma(v, v, rest);
}

template <typename T>
void form(const double* columns, std::int64_t ld, std::int64_t n, std::int64_t r, const double* tau,
          double scale, double* work, T* q, std::int64_t ldq) {
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t j = (r - 1) / kColumns; j >= 0; --j) {
    const std::int64_t first = j * kColumns, count = r - first < kColumns ? r - first : kColumns;
    double* unit = work + omp_get_thread_num() * kColumns * ld;
    for (std::int64_t i = 0; i < count * ld; ++i) unit[i] = 0;
    for (std::int64_t c = 0; c < count; ++c) unit[c * ld + first + c] = 1;
    // Reflectors behind a column's own leave it alone.
    for (std::int64_t k = first + count - 1; k >= 0; --k)
      reflect(columns + k * ld, tau[k], unit, ld, k, count);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t c = 0; c < count; ++c)
        put(q[i * ldq + first + c], static_cast<float>(scale * unit[c * ld + i]));
  }
}
}  // namespace

void fill_columns(double* columns, std::int64_t ld, const float* tile, std::int64_t first_row,
                  std::int64_t rows, std::int64_t r) {
#pragma omp parallel for schedule(static)
  for (std::int64_t j = 0; j < r; ++j)
    for (std::int64_t i = 0; i < rows; ++i)
      columns[j * ld + first_row + i] = static_cast<double>(tile[i * r + j]);
}

void householder(double* columns, std::int64_t ld, std::int64_t n, std::int64_t r, double* tau) {
  for (std::int64_t j = 0; j < r; ++j)
    for (std::int64_t i = n; i < ld; ++i) columns[j * ld + i] = 0;
  for (std::int64_t begin = 0; begin < r; begin += kPanel) {
    const std::int64_t end = begin + kPanel < r ? begin + kPanel : r;
    for (std::int64_t k = begin; k < end; ++k) {
      tau[k] = make_reflector(columns + k * ld, n, k);
      for (std::int64_t c = k + 1; c < end; c += kColumns)
        reflect(columns + k * ld, tau[k], columns + c * ld, ld, k, end - c < kColumns ? end - c : kColumns);
    }
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t c = end; c < r; c += kColumns)
      for (std::int64_t k = begin; k < end; ++k)
        reflect(columns + k * ld, tau[k], columns + c * ld, ld, k, r - c < kColumns ? r - c : kColumns);
  }
}

void form_q(const double* columns, std::int64_t ld, std::int64_t n, std::int64_t r, const double* tau,
            double scale, double* work, float* q, std::int64_t ldq) {
  form(columns, ld, n, r, tau, scale, work, q, ldq);
}
void form_q(const double* columns, std::int64_t ld, std::int64_t n, std::int64_t r, const double* tau,
            double scale, double* work, Bf16* q, std::int64_t ldq) {
  form(columns, ld, n, r, tau, scale, work, q, ldq);
}

}  // namespace compact::cpu::COMPACT_ISA
