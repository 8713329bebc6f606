#include "kernels/embedding_cpu.h"

#include <omp.h>

namespace compact::cpu::COMPACT_ISA {

namespace {

[[gnu::always_inline]] inline void copy_element(float from, float& to) { to = from; }
[[gnu::always_inline]] inline void copy_element(Bf16 from, Bf16& to) { to.bits = from.bits; }

template <typename T>
void forward(const std::int32_t* ids, const T* table, std::int64_t ldt, T* out, std::int64_t ldo,
             std::int64_t N, std::int64_t C) {
#pragma omp parallel for schedule(static) if (N * C > 32768)
  for (std::int64_t n = 0; n < N; ++n) {
    const T* from = table + ids[n] * ldt;
    T* to = out + n * ldo;
#pragma omp simd
    for (std::int64_t c = 0; c < C; ++c) copy_element(from[c], to[c]);
  }
}

/// Calls part(begin, end) in each thread with its own range of columns, cut at whole cache lines of float: a
/// thread then walks over all tokens, and no two threads write one element.
template <typename Part>
void over_columns(std::int64_t N, std::int64_t C, Part part) {
  const std::int64_t lines = (C + 31) / 32;
#pragma omp parallel if (N * C > 32768)
  {
    const std::int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    const std::int64_t begin = lines * me / threads * 32, end = lines * (me + 1) / threads * 32;
    part(begin, end < C ? end : C);
  }
}

template <typename T>
void backward(const std::int32_t* ids, const T* dout, std::int64_t ldo, float* dtable, std::int64_t ldt,
              std::int64_t N, std::int64_t C) {
  over_columns(N, C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = 0; n < N; ++n) {
      const T* from = dout + n * ldo;
      float* to = dtable + ids[n] * ldt;
#pragma omp simd
      for (std::int64_t c = begin; c < end; ++c) to[c] += to_float(from[c]);
    }
  });
}

template <typename T>
void backward_once(const std::int32_t* ids, const std::int32_t* first, const std::int32_t* next,
                   const T* dout, std::int64_t ldo, Bf16* dtable, std::int64_t ldt, std::int64_t N,
                   std::int64_t C) {
  constexpr std::int64_t block = 256;  // columns that are summed together
  over_columns(N, C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = 0; n < N; ++n) {
      if (first[ids[n]] != n) continue;  // its id has had its turn
      for (std::int64_t at = begin; at < end; at += block) {
        const std::int64_t count = end - at < block ? end - at : block;
        float sums[block];
        const T* head = dout + n * ldo + at;
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) sums[c] = to_float(head[c]);
        for (std::int64_t m = next[n]; m >= 0; m = next[m]) {
          const T* from = dout + m * ldo + at;
#pragma omp simd
          for (std::int64_t c = 0; c < count; ++c) sums[c] += to_float(from[c]);
        }
        Bf16* to = dtable + ids[n] * ldt + at;
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) put(to[c], to_float(to[c]) + sums[c]);
      }
    }
  });
}

}  // namespace

void embedding_forward(const std::int32_t* ids, const float* table, std::int64_t ldt, float* out,
                       std::int64_t ldo, std::int64_t N, std::int64_t C) {
  forward(ids, table, ldt, out, ldo, N, C);
}
void embedding_forward(const std::int32_t* ids, const Bf16* table, std::int64_t ldt, Bf16* out,
                       std::int64_t ldo, std::int64_t N, std::int64_t C) {
  forward(ids, table, ldt, out, ldo, N, C);
}

void embedding_backward(const std::int32_t* ids, const float* dout, std::int64_t ldo, float* dtable,
                        std::int64_t ldt, std::int64_t N, std::int64_t C) {
  backward(ids, dout, ldo, dtable, ldt, N, C);
}
void embedding_backward(const std::int32_t* ids, const Bf16* dout, std::int64_t ldo, float* dtable,
                        std::int64_t ldt, std::int64_t N, std::int64_t C) {
  backward(ids, dout, ldo, dtable, ldt, N, C);
}

void embedding_backward_once(const std::int32_t* ids, const std::int32_t* first, const std::int32_t* next,
                             const float* dout, std::int64_t ldo, Bf16* dtable, std::int64_t ldt,
                             std::int64_t N, std::int64_t C) {
  backward_once(ids, first, next, dout, ldo, dtable, ldt, N, C);
}
void embedding_backward_once(const std::int32_t* ids, const std::int32_t* first, const std::int32_t* next,
                             const Bf16* dout, std::int64_t ldo, Bf16* dtable, std::int64_t ldt,
                             std::int64_t N, std::int64_t C) {
  backward_once(ids, first, next, dout, ldo, dtable, ldt, N, C);
}

}  // namespace compact::cpu::COMPACT_ISA
