#include "kernels/adam_cpu.h"

#include "kernels/rounding_cpu.h"

namespace compact::cpu::COMPACT_ISA {

namespace {

constexpr std::int64_t kSegment = 32 * kRandomWords;  // elements that a thread takes at once
constexpr std::int64_t kShared = 16384;               // fewer elements are not worth waking the threads

/// One element: the moments move, the return value is lr · (m c1) / (sqrt(v c2) + eps). Each operation rounds
/// by itself or is an fma written out, so the bits depend on no instruction set.
[[gnu::always_inline]] inline float moved(const AdamStep& step, float gradient, float& m, float& v) {
  const float g = gradient * step.gradient_scale;
  m = __builtin_fmaf(step.beta1, m, step.rest1 * g);
  v = __builtin_fmaf(step.beta2, v, step.rest2 * g * g);
  return step.lr * ((m * step.correction1) / (__builtin_sqrtf(v * step.correction2) + step.eps));
}

[[gnu::always_inline]] inline void put_random(float& to, float x, std::uint32_t) { to = x; }
[[gnu::always_inline]] inline void put_random(Bf16& to, float x, std::uint32_t random) {
  to = stochastic_bf16(x, random);
}

/// How the weights are written.
enum class Write { Nearest, Stochastic, Master };

template <Write write, typename W, typename G, typename S>
[[gnu::always_inline]] inline void update_group(const AdamStep& step, W* __restrict w,
                                                float* __restrict master, const G* __restrict g,
                                                S* __restrict m, S* __restrict v,
                                                const std::uint32_t* __restrict words, std::int64_t count) {
  constexpr bool random = write == Write::Stochastic || sizeof(S) == 2;
  const float kept = 1.0f - step.decay;
#pragma omp simd
  for (std::int64_t k = 0; k < count; ++k) {
    float mk = to_float(m[k]), vk = to_float(v[k]);
    const float move = moved(step, to_float(g[k]), mk, vk);
    const float old = write == Write::Master ? master[k] : to_float(w[k]);
    const float x = __builtin_fmaf(old, kept, -move);
    const std::uint32_t word = random ? words[k] : 0;
    if constexpr (write == Write::Master) master[k] = x;
    if constexpr (write == Write::Stochastic)
      put_random(w[k], x, word);
    else
      put(w[k], x);
    put(m[k], mk);
    put_random(v[k], vk, word >> 16);
  }
}

template <typename G, typename S>
[[gnu::always_inline]] inline void direction_group(const AdamStep& step, G* __restrict g, S* __restrict m,
                                                   S* __restrict v, const std::uint32_t* __restrict words,
                                                   std::int64_t count) {
#pragma omp simd
  for (std::int64_t k = 0; k < count; ++k) {
    float mk = to_float(m[k]), vk = to_float(v[k]);
    put(g[k], -moved(step, to_float(g[k]), mk, vk));
    put(m[k], mk);
    put_random(v[k], vk, sizeof(S) == 2 ? words[k] >> 16 : 0);
  }
}

/// Calls group(offset of its first element, elements, their random words) for all elements. Without random
/// words, rows mean nothing and groups are long.
template <bool random, typename Group>
[[gnu::always_inline]] inline void for_groups(const Rounding& rounding_, std::int64_t rows, std::int64_t cols,
                                              Group group) {
  const Rounding rounding = rounding_;
  if (!random) {
    cols *= rows;
    rows = 1;
  }
  const std::int64_t segments = (cols + kSegment - 1) / kSegment;  // of a row
#pragma omp parallel for schedule(static) if (rows * cols > kShared)
  for (std::int64_t unit = 0; unit < rows * segments; ++unit) {
    const std::int64_t row = unit / segments, begin = unit % segments * kSegment;
    const std::int64_t end = begin + kSegment < cols ? begin + kSegment : cols, at = row * cols;
    if constexpr (random) {
      alignas(64) std::uint32_t words[kRandomWords];
      std::int64_t j = begin;
      for (; j + kRandomWords <= end; j += kRandomWords) {
        random_words(words, rounding, row, j);
        group(at + j, kRandomWords, words);
      }
      if (j < end) {
        random_words(words, rounding, row, j);
        group(at + j, end - j, words);
      }
    } else {
      group(at + begin, end - begin, nullptr);
    }
  }
}

template <Write write, typename W, typename G, typename S>
void update(const AdamStep& step_, const Rounding& rounding, W* w, float* master, const G* g, S* m, S* v,
            std::int64_t rows, std::int64_t cols) {
  const AdamStep step = step_;  // a copy that no store through w, m, v can alias
  for_groups<write == Write::Stochastic || sizeof(S) == 2>(
      rounding, rows, cols,
      [=](std::int64_t at, std::int64_t count, const std::uint32_t* words) __attribute__((always_inline)) {
        update_group<write>(step, w + at, write == Write::Master ? master + at : nullptr, g + at, m + at,
                            v + at, words, count);
      });
}

/// Mean of (g · scale)² over a row: 32 running sums, then their sum in order.
template <typename G>
[[gnu::always_inline]] inline float mean_square(const G* g, float scale, std::int64_t cols) {
  constexpr int kSums = 32;
  float sums[kSums] = {};
  std::int64_t j = 0;
  for (; j + kSums <= cols; j += kSums)
#pragma omp simd
    for (int lane = 0; lane < kSums; ++lane) {
      const float x = to_float(g[j + lane]) * scale;
      sums[lane] = __builtin_fmaf(x, x, sums[lane]);
    }
  for (int lane = 0; j < cols; ++j, ++lane) {
    const float x = to_float(g[j]) * scale;
    sums[lane] = __builtin_fmaf(x, x, sums[lane]);
  }
  float total = 0;
  for (int lane = 0; lane < kSums; ++lane) total += sums[lane];
  return total / static_cast<float>(cols);
}

template <typename G, typename S>
[[gnu::always_inline]] inline void direction_row(const AdamStep& step, G* __restrict g, S* __restrict m,
                                                 float v, std::int64_t cols) {
  const float size = __builtin_sqrtf(v * step.correction2) + step.eps;
#pragma omp simd
  for (std::int64_t j = 0; j < cols; ++j) {
    const float x = to_float(g[j]) * step.gradient_scale;
    const float mj = __builtin_fmaf(step.beta1, to_float(m[j]), step.rest1 * x);
    put(g[j], -(step.lr * ((mj * step.correction1) / size)));
    put(m[j], mj);
  }
}

}  // namespace

template <typename W, typename G, typename S>
void adam_update(const AdamStep& step, const Rounding& rounding, W* w, float* master, const G* g, S* m, S* v,
                 std::int64_t rows, std::int64_t cols) {
  if (master != nullptr) return update<Write::Master>(step, rounding, w, master, g, m, v, rows, cols);
  if constexpr (sizeof(W) == 2)
    if (rounding.stochastic) return update<Write::Stochastic>(step, rounding, w, master, g, m, v, rows, cols);
  update<Write::Nearest>(step, rounding, w, master, g, m, v, rows, cols);
}

template <typename G, typename S>
void adam_direction(const AdamStep& step_, const Rounding& rounding, G* g, S* m, S* v, std::int64_t rows,
                    std::int64_t cols) {
  const AdamStep step = step_;
  for_groups<sizeof(S) == 2>(
      rounding, rows, cols,
      [=](std::int64_t at, std::int64_t count, const std::uint32_t* words)
          __attribute__((always_inline)) { direction_group(step, g + at, m + at, v + at, words, count); });
}

template <typename G, typename S>
void adam_direction_by_row(const AdamStep& step_, const Rounding& rounding_, G* g, S* m, S* v,
                           std::int64_t rows, std::int64_t cols) {
  const AdamStep step = step_;
  Rounding rounding = rounding_;
  rounding.first_row = 0;  // v is one row, of which these are elements first .. first + rows - 1
  const std::int64_t first = rounding_.first_row;
#pragma omp parallel for schedule(static) if (rows * cols > kShared)
  for (std::int64_t i = 0; i < rows; ++i) {
    const float mean = mean_square(g + i * cols, step.gradient_scale, cols);
    const float vi = __builtin_fmaf(step.beta2, to_float(v[i]), step.rest2 * mean);
    std::uint32_t word = 0;
    if constexpr (sizeof(S) == 2) {
      alignas(64) std::uint32_t words[kRandomWords];
      const std::int64_t at = first + i;
      random_words(words, rounding, 0, at / kRandomWords * kRandomWords);
      word = words[at % kRandomWords] >> 16;
    }
    put_random(v[i], vi, word);
    direction_row(step, g + i * cols, m + i * cols, vi, cols);
  }
}

#define COMPACT_ADAM_OF_GRADIENT_AND_STATES(G, S)                                                            \
  template void adam_update(const AdamStep&, const Rounding&, float*, float*, const G*, S*, S*,              \
                            std::int64_t, std::int64_t);                                                     \
  template void adam_update(const AdamStep&, const Rounding&, Bf16*, float*, const G*, S*, S*, std::int64_t, \
                            std::int64_t);                                                                   \
  template void adam_direction(const AdamStep&, const Rounding&, G*, S*, S*, std::int64_t, std::int64_t);    \
  template void adam_direction_by_row(const AdamStep&, const Rounding&, G*, S*, S*, std::int64_t,            \
                                      std::int64_t);
COMPACT_ADAM_OF_GRADIENT_AND_STATES(float, float)
COMPACT_ADAM_OF_GRADIENT_AND_STATES(float, Bf16)
COMPACT_ADAM_OF_GRADIENT_AND_STATES(Bf16, float)
COMPACT_ADAM_OF_GRADIENT_AND_STATES(Bf16, Bf16)
#undef COMPACT_ADAM_OF_GRADIENT_AND_STATES

}  // namespace compact::cpu::COMPACT_ISA
