#include "kernels/elementwise_cpu.h"

#include "kernels/element_loops.h"

namespace compact::cpu::COMPACT_ISA {

namespace {

constexpr std::int64_t kPiece = 8192;  // elements of a row that one thread takes at once

/// Calls part(row, first column, columns) for pieces that together are [rows, cols], shared by the threads.
/// One that is `contiguous` is taken as a single long row: it may be [1, n] or [n, 1].
template <typename Part>
void over_pieces(bool contiguous, std::int64_t rows, std::int64_t cols, Part part) {
  if (contiguous) {
    cols *= rows;
    rows = 1;
  }
  const std::int64_t pieces = (cols + kPiece - 1) / kPiece;
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
  for (std::int64_t k = 0; k < rows * pieces; ++k) {
    const std::int64_t begin = k % pieces * kPiece, rest = cols - begin;
    part(k / pieces, begin, rest < kPiece ? rest : kPiece);
  }
}

template <typename From, typename To>
[[gnu::always_inline]] inline void convert(From from, To& to) {
  put(to, to_float(from));
}
// Not by way of a float: that would quiet a NaN.
[[gnu::always_inline]] inline void convert(Bf16 from, Bf16& to) { to.bits = from.bits; }

template <typename T>
void fill_with(T* x, std::int64_t ld, std::int64_t rows, std::int64_t cols, float value) {
  T element;
  put(element, value);
  over_pieces(ld == cols, rows, cols, [=](std::int64_t i, std::int64_t j, std::int64_t n) {
    T* at = x + i * ld + j;
#pragma omp simd
    for (std::int64_t k = 0; k < n; ++k) convert(element, at[k]);
  });
}

template <typename From, typename To>
void copy_to(const From* from, std::int64_t ldf, To* to, std::int64_t ldt, std::int64_t rows,
             std::int64_t cols) {
  over_pieces(ldf == cols && ldt == cols, rows, cols, [=](std::int64_t i, std::int64_t j, std::int64_t n) {
    const From* p = from + i * ldf + j;
    To* q = to + i * ldt + j;
#pragma omp simd
    for (std::int64_t k = 0; k < n; ++k) convert(p[k], q[k]);
  });
}

template <typename T>
void add_to(const T* a, std::int64_t lda, const T* b, std::int64_t ldb, T* out, std::int64_t ldo,
            std::int64_t rows, std::int64_t cols) {
  over_pieces(lda == cols && ldb == cols && ldo == cols, rows, cols,
              [=](std::int64_t i, std::int64_t j, std::int64_t n) {
                map(
                    n, out + i * ldo + j,
                    [](float x, float y) __attribute__((always_inline)) { return x + y; }, a + i * lda + j,
                    b + i * ldb + j);
              });
}

}  // namespace

void fill(float* x, std::int64_t ld, std::int64_t rows, std::int64_t cols, float value) {
  fill_with(x, ld, rows, cols, value);
}
void fill(Bf16* x, std::int64_t ld, std::int64_t rows, std::int64_t cols, float value) {
  fill_with(x, ld, rows, cols, value);
}

void copy(const float* from, std::int64_t ldf, float* to, std::int64_t ldt, std::int64_t rows,
          std::int64_t cols) {
  copy_to(from, ldf, to, ldt, rows, cols);
}
void copy(const float* from, std::int64_t ldf, Bf16* to, std::int64_t ldt, std::int64_t rows,
          std::int64_t cols) {
  copy_to(from, ldf, to, ldt, rows, cols);
}
void copy(const Bf16* from, std::int64_t ldf, float* to, std::int64_t ldt, std::int64_t rows,
          std::int64_t cols) {
  copy_to(from, ldf, to, ldt, rows, cols);
}
void copy(const Bf16* from, std::int64_t ldf, Bf16* to, std::int64_t ldt, std::int64_t rows,
          std::int64_t cols) {
  copy_to(from, ldf, to, ldt, rows, cols);
}

void add(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* out, std::int64_t ldo,
         std::int64_t rows, std::int64_t cols) {
  add_to(a, lda, b, ldb, out, ldo, rows, cols);
}
void add(const Bf16* a, std::int64_t lda, const Bf16* b, std::int64_t ldb, Bf16* out, std::int64_t ldo,
         std::int64_t rows, std::int64_t cols) {
  add_to(a, lda, b, ldb, out, ldo, rows, cols);
}

}  // namespace compact::cpu::COMPACT_ISA
