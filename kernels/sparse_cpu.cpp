#include "kernels/sparse_cpu.h"

#include <omp.h>

#include "kernels/expand_cpu.h"
#include "kernels/lanes_cpu.h"

namespace compact::cpu::COMPACT_ISA {

namespace {
constexpr std::int64_t kWorkLanes = 16;  // of `work`, whatever the instruction set

template <typename X, typename Z>
[[gnu::always_inline]] inline void project_tile(const SparseDraw& p, const X* x, std::int64_t ldx, Z* z,
                                                std::int64_t ldz, std::int64_t rows, float* tile) {
  for (std::int64_t j = 0; j < p.r; ++j) store(tile + j * kLanes, Vec{});
  for (std::int64_t i = 0; i < p.n; i += kLanes) {
    Vec v[kLanes];
    load_block(v, x + i, ldx, rows, p.n - i);
    for (std::int64_t c = 0; c < kLanes && i + c < p.n; ++c)
      for (std::int64_t k = 0; k < p.count; ++k) {
        const std::uint32_t place = p.places[(i + c) * p.count + k];
        float* at = tile + (place >> 1) * kLanes;
        store(at, load(at) + signed_by(v[c], place << 31));
      }
  }
  const Vec entry = broadcast(p.entry);
  for (std::int64_t j = 0; j < p.r; j += kLanes) {
    Vec v[kLanes] = {};
    for (std::int64_t c = 0; c < kLanes && j + c < p.r; ++c) v[c] = entry * load(tile + (j + c) * kLanes);
    store_block(z + j, ldz, rows, p.r - j, v);
  }
}

template <typename X, typename Z>
void project_all(const SparseDraw& draw, const X* x, std::int64_t ldx, Z* z, std::int64_t ldz, std::int64_t N,
                 float* work) {
  const SparseDraw p = draw;
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < (N + kLanes - 1) / kLanes; ++i)
    project_tile(p, x + i * kLanes * ldx, ldx, z + i * kLanes * ldz, ldz, N - i * kLanes,
                 work + omp_get_thread_num() * p.r * kWorkLanes);
}

template <typename D, typename W>
[[gnu::always_inline]] inline void expand_tile(const SparseDraw& p, const D* d, std::int64_t ldd, W* w,
                                               std::int64_t ldw, std::int64_t first_row, std::int64_t m,
                                               float kept, const Rounding& rounding, float* tile) {
  const std::int64_t rows = m - first_row < kLanes ? m - first_row : kLanes;
  const Vec entry = broadcast(p.entry);
  for (std::int64_t j = 0; j < p.r; j += kLanes) {
    Vec v[kLanes];
    load_block(v, d + first_row * ldd + j, ldd, rows, p.r - j);
    for (std::int64_t c = 0; c < kLanes && j + c < p.r; ++c) store(tile + (j + c) * kLanes, entry * v[c]);
  }
  for (std::int64_t j = 0; j < p.n; j += kRandomWords) {
    const std::int64_t cols = p.n - j < kRandomWords ? p.n - j : kRandomWords;
    float change[kLanes][kRandomWords];
    for (std::int64_t b = 0; b < cols; b += kLanes) {
      Vec v[kLanes] = {};
      for (std::int64_t c = 0; c < kLanes && j + b + c < p.n; ++c)
        for (std::int64_t k = 0; k < p.count; ++k) {
          const std::uint32_t place = p.places[(j + b + c) * p.count + k];
          v[c] += signed_by(load(tile + (place >> 1) * kLanes), place << 31);
        }
      store_block(&change[0][b], kRandomWords, kLanes, kLanes, v);
    }
    for (std::int64_t i = 0; i < rows; ++i)
      take_change(w + (first_row + i) * ldw + j, change[i], cols, kept, rounding, first_row + i, j);
  }
}

template <typename D, typename W>
void expand_all(const SparseDraw& draw, const D* d, std::int64_t ldd, W* w, std::int64_t ldw, std::int64_t m,
                float kept, const Rounding& rounding_, float* work) {
  const SparseDraw p = draw;
  const Rounding rounding = rounding_;
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < (m + kLanes - 1) / kLanes; ++i)
    expand_tile(p, d, ldd, w, ldw, i * kLanes, m, kept, rounding,
                work + omp_get_thread_num() * p.r * kWorkLanes);
}

template <typename T>
void rows_of(const SparseDraw& draw, std::int64_t first_row, T* tile, std::int64_t ld, std::int64_t rows) {
  const SparseDraw p = draw;
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < rows; ++i) {
    T* row = tile + i * ld;
    for (std::int64_t j = 0; j < p.r; ++j) put(row[j], 0.0f);
    for (std::int64_t k = 0; k < p.count; ++k) {
      const std::uint32_t place = p.places[(first_row + i) * p.count + k];
      put(row[place >> 1], (place & 1u) != 0 ? -p.entry : p.entry);
    }
  }
}
}  // namespace

void sparse_project(const SparseDraw& p, const float* x, std::int64_t ldx, float* z, std::int64_t ldz,
                    std::int64_t N, float* work) {
  project_all(p, x, ldx, z, ldz, N, work);
}
void sparse_project(const SparseDraw& p, const Bf16* x, std::int64_t ldx, float* z, std::int64_t ldz,
                    std::int64_t N, float* work) {
  project_all(p, x, ldx, z, ldz, N, work);
}
void sparse_project(const SparseDraw& p, const Bf16* x, std::int64_t ldx, Bf16* z, std::int64_t ldz,
                    std::int64_t N, float* work) {
  project_all(p, x, ldx, z, ldz, N, work);
}

void sparse_expand(const SparseDraw& p, const float* d, std::int64_t ldd, float* w, std::int64_t ldw,
                   std::int64_t m, float kept, const Rounding& rounding, float* work) {
  expand_all(p, d, ldd, w, ldw, m, kept, rounding, work);
}
void sparse_expand(const SparseDraw& p, const Bf16* d, std::int64_t ldd, float* w, std::int64_t ldw,
                   std::int64_t m, float kept, const Rounding& rounding, float* work) {
  expand_all(p, d, ldd, w, ldw, m, kept, rounding, work);
}
void sparse_expand(const SparseDraw& p, const float* d, std::int64_t ldd, Bf16* w, std::int64_t ldw,
                   std::int64_t m, float kept, const Rounding& rounding, float* work) {
  expand_all(p, d, ldd, w, ldw, m, kept, rounding, work);
}
void sparse_expand(const SparseDraw& p, const Bf16* d, std::int64_t ldd, Bf16* w, std::int64_t ldw,
                   std::int64_t m, float kept, const Rounding& rounding, float* work) {
  expand_all(p, d, ldd, w, ldw, m, kept, rounding, work);
}

void sparse_rows(const SparseDraw& p, std::int64_t first_row, float* tile, std::int64_t ld,
                 std::int64_t rows) {
  rows_of(p, first_row, tile, ld, rows);
}
void sparse_rows(const SparseDraw& p, std::int64_t first_row, Bf16* tile, std::int64_t ld,
                 std::int64_t rows) {
  rows_of(p, first_row, tile, ld, rows);
}

}  // namespace compact::cpu::COMPACT_ISA
