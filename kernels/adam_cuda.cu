#include "kernels/adam_cuda.h"

#include "kernels/by_type.h"
#include "kernels/fours_cuda.h"
#include "kernels/reduce_cuda.h"
#include "kernels/weight_change_cuda.h"

/// All kernels here are bound by memory: 28 bytes an element of an fp32 AdamW (w, m, v read and written, g
/// read), 16 with bf16 weights and moments beside fp32 gradients; 24 an element of an fp32 direction. A
/// thread has the four neighbours of one Philox block, so each block of words is made once, and its four or
/// five loads are in flight together.
namespace compact::cuda {

namespace {

constexpr int kThreads = 256;

/// What differs from step to step, as one live value. No padding: its bytes are compared.
struct AdamUpdate {
  AdamStep step;
  WeightChange change;
};
static_assert(sizeof(AdamUpdate) == 10 * sizeof(float) + 8 + sizeof(WeightChange));

const AdamUpdate* live_update(Queue& queue, const AdamStep& step, const Rounding& rounding) {
  return queue.live(AdamUpdate{step, weight_change(1.0f - step.decay, rounding, step.gate)});
}

/// One element; each operation as in kernels/adam_cpu.cpp, so the bits are those of the CPU.
__device__ __forceinline__ float moved(const AdamStep& step, float scale, float gradient, float& m,
                                       float& v) {
  const float g = gradient * scale;
  m = fmaf(step.beta1, m, step.rest1 * g);
  v = fmaf(step.beta2, v, step.rest2 * g * g);
  return step.lr * ((m * step.correction1) / (sqrtf(v * step.correction2) + step.eps));
}

/// The random words of four neighbours from flat element `at` on. They are one block where rows are a
/// multiple of four wide; else the four may belong to several blocks and rows.
__device__ __forceinline__ uint4 words_of_four(const WeightChange& change, std::int64_t at,
                                               std::int64_t elements, std::int64_t cols) {
  const bool small = elements <= 0x7FFFFFFF;  // a division in 64 bits costs as much as all of the update
  std::int64_t row = small ? static_cast<std::uint32_t>(at) / static_cast<std::uint32_t>(cols) : at / cols;
  std::int64_t column = at - row * cols;
  uint4 block = random_words(change, row, column / 4);
  if (cols % 4 == 0) return block;
  std::uint32_t words[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    words[k] = word_of(block, static_cast<int>(column % 4));
    if (++column == cols) ++row, column = 0;
    if (column % 4 == 0) block = random_words(change, row, column / 4);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

template <typename W, typename G, typename S>
struct AdamOperands {
  W* w;
  float* master;  // or null
  G* g;
  S *m, *v;
  std::int64_t elements, cols, aligned;  // all contiguous; aligned: groups of four are vectors
};

template <typename W, typename G, typename S>
__global__ __launch_bounds__(kThreads, 4) void adamw_kernel(AdamOperands<W, G, S> x, const AdamUpdate* live) {
  const std::int64_t at = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4, count = x.elements - at;
  if (count <= 0) return;
  const bool vector = x.aligned != 0 && count >= 4;
  const Four g = load_four(x.g + at, vector, count);
  Four m = load_four(x.m + at, vector, count), v = load_four(x.v + at, vector, count);
  Four w = x.master != nullptr ? load_four(x.master + at, vector, count) : load_four(x.w + at, vector, count);
  const AdamStep step = live->step;
  const WeightChange change = live->change;
  if (gate_closed(change.gate)) return;
  const float scale = step.gradient_scale * gate_factor(change.gate);
  const bool stochastic = sizeof(W) == 2 && x.master == nullptr && change.stochastic != 0;
  uint4 words = make_uint4(0, 0, 0, 0);
  if (stochastic || sizeof(S) == 2) words = words_of_four(change, at, x.elements, x.cols);
  FourOf<W> new_w;
  FourOf<S> new_m, new_v;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float move = moved(step, scale, g.x[k], m.x[k], v.x[k]);
    w.x[k] = fmaf(w.x[k], change.kept, -move);
    const std::uint32_t word = word_of(words, k);
    if (stochastic)
      put_random(new_w.x[k], w.x[k], word);
    else
      put(new_w.x[k], w.x[k]);
    put(new_m.x[k], m.x[k]);
    put_random(new_v.x[k], v.x[k], word >> 16);
  }
  if (x.master != nullptr)
    store_four(x.master + at, FourOf<float>{{w.x[0], w.x[1], w.x[2], w.x[3]}}, vector, count);
  store_four(x.w + at, new_w, vector, count);
  store_four(x.m + at, new_m, vector, count);
  store_four(x.v + at, new_v, vector, count);
}

template <typename G, typename S>
__global__ __launch_bounds__(kThreads, 4) void direction_kernel(AdamOperands<G, G, S> x,
                                                                const AdamUpdate* live) {
  const std::int64_t at = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4, count = x.elements - at;
  if (count <= 0) return;
  const bool vector = x.aligned != 0 && count >= 4;
  const Four g = load_four(x.g + at, vector, count);
  Four m = load_four(x.m + at, vector, count), v = load_four(x.v + at, vector, count);
  const AdamStep step = live->step;
  const WeightChange change = live->change;
  if (gate_closed(change.gate)) return;
  const float scale = step.gradient_scale * gate_factor(change.gate);
  uint4 words = make_uint4(0, 0, 0, 0);
  if (sizeof(S) == 2) words = words_of_four(change, at, x.elements, x.cols);
  FourOf<G> new_g;
  FourOf<S> new_m, new_v;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    put(new_g.x[k], -moved(step, scale, g.x[k], m.x[k], v.x[k]));
    put(new_m.x[k], m.x[k]);
    put_random(new_v.x[k], v.x[k], word_of(words, k) >> 16);
  }
  store_four(x.g + at, new_g, vector, count);
  store_four(x.m + at, new_m, vector, count);
  store_four(x.v + at, new_v, vector, count);
}

constexpr int kRowThreads = 128;

/// A block for each row: g is read twice, the second time from a cache. The mean is summed by each thread
/// over its groups of four, then over lanes by halves, then over warps in order: an order of the width alone.
template <typename G, typename S>
__global__ __launch_bounds__(kRowThreads) void direction_by_row_kernel(AdamOperands<G, G, S> x,
                                                                       const AdamUpdate* live) {
  COMPACT_SHARED(float, sums, [kRowThreads / kWarp]);
  const AdamStep step = live->step;
  const WeightChange change = live->change;
  if (gate_closed(change.gate)) return;
  const float scale = step.gradient_scale * gate_factor(change.gate);
  const std::int64_t row = blockIdx.x, cols = x.cols;
  G* g = x.g + row * cols;
  S* m = x.m + row * cols;
  float sum = 0;
  for (std::int64_t j = 4 * threadIdx.x; j < cols; j += 4 * kRowThreads) {
    const Four four = load_four(g + j, x.aligned != 0 && j + 4 <= cols, cols - j);
#pragma unroll
    for (int k = 0; k < 4; ++k) sum = fmaf(four.x[k] * scale, four.x[k] * scale, sum);
  }
  const float total = block_sum(sum, sums);
  const float v = fmaf(step.beta2, to_float(x.v[row]), step.rest2 * (total / static_cast<float>(cols)));
  const float size = sqrtf(v * step.correction2) + step.eps;
  for (std::int64_t j = 4 * threadIdx.x; j < cols; j += 4 * kRowThreads) {
    const bool vector = x.aligned != 0 && j + 4 <= cols;
    const Four old = load_four(g + j, vector, cols - j), moment = load_four(m + j, vector, cols - j);
    FourOf<G> new_g;
    FourOf<S> new_m;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float mk = fmaf(step.beta1, moment.x[k], step.rest1 * (old.x[k] * scale));
      put(new_g.x[k], -(step.lr * ((mk * step.correction1) / size)));
      put(new_m.x[k], mk);
    }
    store_four(g + j, new_g, vector, cols - j);
    store_four(m + j, new_m, vector, cols - j);
  }
  __syncthreads();  // all have read v
  if (threadIdx.x == 0) {
    std::uint32_t word = 0;
    if (sizeof(S) == 2) {  // v is one row, of which this is element `at`
      const std::int64_t at = change.first_row + row;
      WeightChange one_row = change;
      one_row.first_row = 0;
      word = word_of(random_words(one_row, 0, at / 4), static_cast<int>(at % 4));
    }
    put_random(x.v[row], v, word >> 16);
  }
}

/// For a direction w is g itself and no master is there.
template <typename W, typename G, typename S>
AdamOperands<W, G, S> operands(const Tensor& w, const Tensor& master, const Tensor& g, const Tensor& m,
                               const Tensor& v, bool aligned) {
  return {w.as<W>(), master.f32(), g.as<G>(), m.as<S>(), v.as<S>(), w.elements(), w.cols(), aligned ? 1 : 0};
}

/// The start of a contiguous tensor is that of a vector; rows do not matter then.
bool starts_aligned(const Tensor& t) {
  return reinterpret_cast<std::uintptr_t>(t.data) % static_cast<std::uintptr_t>(4 * size_of(t.dtype)) == 0;
}

template <typename F>
void by_types(DType g, DType states, F f) {
  by_type(g, [&](auto b) { by_type(states, [&](auto c) { f(b, c); }); });
}

}  // namespace

void adamw(Queue& queue, const AdamStep& step, const Rounding& rounding, const Tensor& w, const Tensor& g,
           const Tensor& m, const Tensor& v, const Tensor& master) {
  if (w.elements() == 0) return;
  const AdamUpdate* live = live_update(queue, step, rounding);
  const bool aligned = starts_aligned(w) && starts_aligned(g) && starts_aligned(m) && starts_aligned(v) &&
                       starts_aligned(master);
  by_type(w.dtype, [&](auto a) {
    by_types(g.dtype, m.dtype, [&](auto b, auto c) {
      using W = decltype(a);
      using G = decltype(b);
      using S = decltype(c);
      launch(queue, {"adamw", blocks_for(w.elements(), 4 * kThreads), kThreads}, adamw_kernel<W, G, S>,
             operands<W, G, S>(w, master, g, m, v, aligned), live);
    });
  });
}

void adam_direction(Queue& queue, const AdamStep& step, const Rounding& rounding, const Tensor& g,
                    const Tensor& m, const Tensor& v) {
  if (g.elements() == 0) return;
  const AdamUpdate* live = live_update(queue, step, rounding);
  const bool by_row = has_one_for_each_row(v, g);
  by_types(g.dtype, m.dtype, [&](auto b, auto c) {
    using G = decltype(b);
    using S = decltype(c);
    if (by_row) {
      const bool aligned = has_fours(g) && has_fours(m);
      launch(queue, {"adam_direction", static_cast<unsigned>(g.rows()), kRowThreads},
             direction_by_row_kernel<G, S>, operands<G, G, S>(g, {}, g, m, v, aligned), live);
    } else {
      const bool aligned = starts_aligned(g) && starts_aligned(m) && starts_aligned(v);
      launch(queue, {"adam_direction", blocks_for(g.elements(), 4 * kThreads), kThreads},
             direction_kernel<G, S>, operands<G, G, S>(g, {}, g, m, v, aligned), live);
    }
  });
}

}  // namespace compact::cuda
