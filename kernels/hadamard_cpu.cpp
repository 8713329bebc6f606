#include "kernels/hadamard_cpu.h"

#include <omp.h>

#include "kernels/expand_cpu.h"
#include "kernels/lanes_cpu.h"

namespace compact::cpu::COMPACT_ISA {

namespace {
/// Points of a transform that are worked on at once in registers: 2^kMostStages.
constexpr int kMostStages = kLanes == 16 ? 4 : 3;
constexpr std::int64_t kWorkLanes = 16;  // of `work`, whatever the instruction set

/// `stages` stages of the transform between 2^stages vectors. Stage k adds and subtracts those whose numbers
/// differ in bit k, so the sums do not depend on how stages are grouped.
template <int stages>
[[gnu::always_inline]] inline void butterflies(Vec* v) {
#pragma GCC unroll 4
  for (int stage = 0; stage < stages; ++stage)
#pragma GCC unroll 16
    for (int i = 0; i < 1 << stages; ++i)
      if ((i >> stage & 1) == 0) {
        const int k = i + (1 << stage);
        const Vec a = v[i], b = v[k];
        v[i] = a + b;
        v[k] = a - b;
      }
}

/// The stages of strides h, 2h, ... of the transform of `tile` [s, kLanes].
template <int stages>
inline void pass(float* tile, std::int64_t s, std::int64_t h) {
  for (std::int64_t base = 0; base < s; base += h << stages)
    for (std::int64_t j = base; j < base + h; ++j) {
      Vec v[1 << stages];
#pragma GCC unroll 16
      for (int k = 0; k < 1 << stages; ++k) v[k] = load(tile + (j + k * h) * kLanes);
      butterflies<stages>(v);
#pragma GCC unroll 16
      for (int k = 0; k < 1 << stages; ++k) store(tile + (j + k * h) * kLanes, v[k]);
    }
}

/// All stages from stride h on of the unnormalised Sylvester-Hadamard transform of `tile` [s, kLanes].
inline void transform(float* tile, std::int64_t s, std::int64_t h) {
  int left = 0;
  while (h << left < s) ++left;
  while (left > 0) {
    // Five stages as three and two, not as four and one.
    const int stages = left <= kMostStages ? left : left < 2 * kMostStages ? (left + 1) / 2 : kMostStages;
    if (stages == 1) pass<1>(tile, s, h);
    if (stages == 2) pass<2>(tile, s, h);
    if (stages == 3) pass<3>(tile, s, h);
    if constexpr (kMostStages == 4)
      if (stages == 4) pass<4>(tile, s, h);
    h <<= stages;
    left -= stages;
  }
}

template <typename X, typename Z>
[[gnu::always_inline]] inline void project_tile(const HadamardDraw& p, const X* x, std::int64_t ldx, Z* z,
                                                std::int64_t ldz, std::int64_t rows, float* tile) {
  const bool whole_blocks = p.s >= kLanes;
  for (std::int64_t i = 0; i < p.s; i += kLanes) {
    Vec v[kLanes] = {};
    if (i < p.n) {
      load_block(v, x + i, ldx, rows, p.n - i);
      for (int c = 0; c < kLanes && i + c < p.s; ++c) v[c] = signed_by(v[c], p.signs[i + c]);
      if (whole_blocks) butterflies<kMostStages>(v);
    }
    for (int c = 0; c < kLanes && i + c < p.s; ++c) store(tile + (i + c) * kLanes, v[c]);
  }
  transform(tile, p.s, whole_blocks ? kLanes : 1);
  const Vec entry = broadcast(p.entry);
  for (std::int64_t j = 0; j < p.r; j += kLanes) {
    Vec v[kLanes] = {};
    for (int c = 0; c < kLanes && j + c < p.r; ++c) v[c] = entry * load(tile + p.sample[j + c] * kLanes);
    store_block(z + j, ldz, rows, p.r - j, v);
  }
}

template <typename X, typename Z>
void project_all(const HadamardDraw& draw, const X* x, std::int64_t ldx, Z* z, std::int64_t ldz,
                 std::int64_t N, float* work) {
  const HadamardDraw p = draw;
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < (N + kLanes - 1) / kLanes; ++i)
    project_tile(p, x + i * kLanes * ldx, ldx, z + i * kLanes * ldz, ldz, N - i * kLanes,
                 work + omp_get_thread_num() * p.s * kWorkLanes);
}

template <typename D, typename W>
[[gnu::always_inline]] inline void expand_tile(const HadamardDraw& p, const D* d, std::int64_t ldd, W* w,
                                               std::int64_t ldw, std::int64_t first_row, std::int64_t m,
                                               float kept, const Rounding& rounding, float* tile) {
  const std::int64_t rows = m - first_row < kLanes ? m - first_row : kLanes;
  for (std::int64_t i = 0; i < p.s; ++i) store(tile + i * kLanes, Vec{});
  for (std::int64_t j = 0; j < p.r; j += kLanes) {
    Vec v[kLanes];
    load_block(v, d + first_row * ldd + j, ldd, rows, p.r - j);
    for (int c = 0; c < kLanes && j + c < p.r; ++c) store(tile + p.sample[j + c] * kLanes, v[c]);
  }
  transform(tile, p.s, 1);
  const Vec entry = broadcast(p.entry);
  for (std::int64_t j = 0; j < p.n; j += kRandomWords) {
    const std::int64_t cols = p.n - j < kRandomWords ? p.n - j : kRandomWords;
    float change[kLanes][kRandomWords];
    for (std::int64_t k = 0; k < cols; k += kLanes) {
      Vec v[kLanes] = {};
      for (int c = 0; c < kLanes && j + k + c < p.n; ++c)
        v[c] = entry * signed_by(load(tile + (j + k + c) * kLanes), p.signs[j + k + c]);
      store_block(&change[0][k], kRandomWords, kLanes, kLanes, v);
    }
    for (std::int64_t i = 0; i < rows; ++i)
      take_change(w + (first_row + i) * ldw + j, change[i], cols, kept, rounding, first_row + i, j);
  }
}

template <typename D, typename W>
void expand_all(const HadamardDraw& draw, const D* d, std::int64_t ldd, W* w, std::int64_t ldw,
                std::int64_t m, float kept, const Rounding& rounding_, float* work) {
  const HadamardDraw p = draw;
  const Rounding rounding = rounding_;
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < (m + kLanes - 1) / kLanes; ++i)
    expand_tile(p, d, ldd, w, ldw, i * kLanes, m, kept, rounding,
                work + omp_get_thread_num() * p.s * kWorkLanes);
}

template <typename T>
void rows_of(const HadamardDraw& draw, std::int64_t first_row, T* tile, std::int64_t ld, std::int64_t rows) {
  const HadamardDraw p = draw;
  const std::uint32_t entry = __builtin_bit_cast(std::uint32_t, p.entry);
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::uint32_t at = static_cast<std::uint32_t>(first_row + i), sign = p.signs[first_row + i];
    T* row = tile + i * ld;
#pragma omp simd
    for (std::int64_t j = 0; j < p.r; ++j) {
      std::uint32_t parity = at & static_cast<std::uint32_t>(p.sample[j]);
      parity ^= parity >> 16;
      parity ^= parity >> 8;
      parity ^= parity >> 4;
      parity ^= parity >> 2;
      parity ^= parity >> 1;
      put(row[j], __builtin_bit_cast(float, entry ^ sign ^ parity << 31));
    }
  }
}
}  // namespace

void hadamard_project(const HadamardDraw& p, const float* x, std::int64_t ldx, float* z, std::int64_t ldz,
                      std::int64_t N, float* work) {
  project_all(p, x, ldx, z, ldz, N, work);
}
void hadamard_project(const HadamardDraw& p, const Bf16* x, std::int64_t ldx, float* z, std::int64_t ldz,
                      std::int64_t N, float* work) {
  project_all(p, x, ldx, z, ldz, N, work);
}
void hadamard_project(const HadamardDraw& p, const Bf16* x, std::int64_t ldx, Bf16* z, std::int64_t ldz,
                      std::int64_t N, float* work) {
  project_all(p, x, ldx, z, ldz, N, work);
}

void hadamard_expand(const HadamardDraw& p, const float* d, std::int64_t ldd, float* w, std::int64_t ldw,
                     std::int64_t m, float kept, const Rounding& rounding, float* work) {
  expand_all(p, d, ldd, w, ldw, m, kept, rounding, work);
}
void hadamard_expand(const HadamardDraw& p, const Bf16* d, std::int64_t ldd, float* w, std::int64_t ldw,
                     std::int64_t m, float kept, const Rounding& rounding, float* work) {
  expand_all(p, d, ldd, w, ldw, m, kept, rounding, work);
}
void hadamard_expand(const HadamardDraw& p, const float* d, std::int64_t ldd, Bf16* w, std::int64_t ldw,
                     std::int64_t m, float kept, const Rounding& rounding, float* work) {
  expand_all(p, d, ldd, w, ldw, m, kept, rounding, work);
}
void hadamard_expand(const HadamardDraw& p, const Bf16* d, std::int64_t ldd, Bf16* w, std::int64_t ldw,
                     std::int64_t m, float kept, const Rounding& rounding, float* work) {
  expand_all(p, d, ldd, w, ldw, m, kept, rounding, work);
}

void hadamard_rows(const HadamardDraw& p, std::int64_t first_row, float* tile, std::int64_t ld,
                   std::int64_t rows) {
  rows_of(p, first_row, tile, ld, rows);
}
void hadamard_rows(const HadamardDraw& p, std::int64_t first_row, Bf16* tile, std::int64_t ld,
                   std::int64_t rows) {
  rows_of(p, first_row, tile, ld, rows);
}

}  // namespace compact::cpu::COMPACT_ISA
