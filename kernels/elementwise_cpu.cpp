#include "kernels/elementwise_cpu.h"

namespace compact::cpu::COMPACT_ISA {

void fill(float* x, std::int64_t ld, std::int64_t rows, std::int64_t cols, float value) {
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = x + i * ld;
#pragma omp simd
    for (std::int64_t j = 0; j < cols; ++j) row[j] = value;
  }
}

void copy(const float* from, std::int64_t ldf, float* to, std::int64_t ldt, std::int64_t rows,
          std::int64_t cols) {
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* p = from + i * ldf;
    float* q = to + i * ldt;
#pragma omp simd
    for (std::int64_t j = 0; j < cols; ++j) q[j] = p[j];
  }
}

void add(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* out, std::int64_t ldo,
         std::int64_t rows, std::int64_t cols) {
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
  for (std::int64_t i = 0; i < rows; ++i) {
    const float *p = a + i * lda, *q = b + i * ldb;
    float* o = out + i * ldo;
#pragma omp simd
    for (std::int64_t j = 0; j < cols; ++j) o[j] = p[j] + q[j];
  }
}

}  // namespace compact::cpu::COMPACT_ISA
