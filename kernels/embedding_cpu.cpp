#include "kernels/embedding_cpu.h"

#include <omp.h>

namespace compact::cpu::COMPACT_ISA {

void embedding_forward(const std::int32_t* ids, const float* table, std::int64_t ldt, float* out,
                       std::int64_t ldo, std::int64_t N, std::int64_t C) {
#pragma omp parallel for schedule(static) if (N * C > 32768)
  for (std::int64_t n = 0; n < N; ++n) {
    const float* from = table + ids[n] * ldt;
    float* to = out + n * ldo;
#pragma omp simd
    for (std::int64_t c = 0; c < C; ++c) to[c] = from[c];
  }
}

void embedding_backward(const std::int32_t* ids, const float* dout, std::int64_t ldo, float* dtable,
                        std::int64_t ldt, std::int64_t N, std::int64_t C) {
  // Each thread owns a range of columns and walks over all tokens: no two threads write one element. Ranges
  // are cut at whole cache lines.
  const std::int64_t lines = (C + 15) / 16;
#pragma omp parallel if (N * C > 32768)
  {
    const std::int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    const std::int64_t begin = lines * me / threads * 16, end_of_lines = lines * (me + 1) / threads * 16;
    const std::int64_t end = end_of_lines < C ? end_of_lines : C;
    for (std::int64_t n = 0; n < N; ++n) {
      const float* from = dout + n * ldo;
      float* to = dtable + ids[n] * ldt;
#pragma omp simd
      for (std::int64_t c = begin; c < end; ++c) to[c] += from[c];
    }
  }
}

}  // namespace compact::cpu::COMPACT_ISA
