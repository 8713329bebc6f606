#include "kernels/global_norm_cpu.h"

namespace compact::cpu::COMPACT_ISA {

namespace {
constexpr int kLanes = 32;             // running sums, the same number on every instruction set
constexpr int kChunks = 256;           // pieces that threads share: enough for any machine
constexpr std::int64_t kLeast = 4096;  // elements in a piece

template <typename T>
double chunk_sum(const T* x, std::int64_t n) {
  double sums[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(to_float(x[i + lane]));
      sums[lane] += value * value;
    }
  for (int lane = 0; i < n; ++i, ++lane) {
    const double value = static_cast<double>(to_float(x[i]));
    sums[lane] += value * value;
  }
  double total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += sums[lane];
  return total;
}
template <typename T>
double sum_over(const T* x, std::int64_t n) {
  const std::int64_t even = (n + kChunks - 1) / kChunks, size = even < kLeast ? kLeast : even;
  const std::int64_t chunks = (n + size - 1) / size;
  double sums[kChunks] = {};
#pragma omp parallel for schedule(static)
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t begin = c * size, rest = n - begin;
    sums[c] = chunk_sum(x + begin, rest < size ? rest : size);
  }
  double total = 0;
  for (std::int64_t c = 0; c < chunks; ++c) total += sums[c];
  return total;
}
}  // namespace

double sum_of_squares(const float* x, std::int64_t n) { return sum_over(x, n); }
double sum_of_squares(const Bf16* x, std::int64_t n) { return sum_over(x, n); }

}  // namespace compact::cpu::COMPACT_ISA
