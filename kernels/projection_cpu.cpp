#include "kernels/projection_cpu.h"

#include "kernels/expand_cpu.h"

namespace compact::cpu::COMPACT_ISA {

void scale_rows(float* x, std::int64_t ld, std::int64_t rows, std::int64_t cols, float factor) {
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = x + i * ld;
#pragma omp simd
    for (std::int64_t j = 0; j < cols; ++j) row[j] *= factor;
  }
}

void round_rows(float* x, std::int64_t ld, std::int64_t rows, std::int64_t cols) {
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = x + i * ld;
#pragma omp simd
    for (std::int64_t j = 0; j < cols; ++j) row[j] = to_float(nearest_bf16(row[j]));
  }
}

void add_change(Bf16* w, std::int64_t ldw, const float* change, std::int64_t ldc, std::int64_t rows,
                std::int64_t cols, float kept, const Rounding& rounding_, std::int64_t first_row,
                std::int64_t first_column) {
  const Rounding rounding = rounding_;
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < rows; ++i)
    take_change(w + i * ldw, change + i * ldc, cols, kept, rounding, first_row + i, first_column);
}

}  // namespace compact::cpu::COMPACT_ISA
