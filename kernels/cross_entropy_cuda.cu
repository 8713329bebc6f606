#include <cfloat>
#include <cmath>

#include "compact/core/labels.h"
#include "kernels/by_type.h"
#include "kernels/cross_entropy_cuda.h"
#include "kernels/launch_cuda.h"
#include "kernels/pack_cuda.h"
#include "kernels/reduce_cuda.h"

namespace compact::cuda {

namespace {

constexpr int kMostThreads = 1024;
constexpr int kKept = 8;  // packs of a row that a thread keeps in registers
constexpr float kLog2e = 1.44269504f;

template <typename T>
struct Rows {
  T* logits;
  const std::int32_t* labels;
  const float* scale;  // null: the loss only
  float* loss;
  std::int64_t ld;
  std::int32_t V, whole;  // labels are I32, so V is too
};

/// e^(x - largest), 0 under 2^-100.
__device__ __forceinline__ float term(float x, float largest) {
  const float power = (x - largest) * kLog2e;
  return power < -100.0f ? 0.0f : fast_exp2(power);
}

/// The sum of the terms of what was seen so far, by the largest of it. It starts from the lowest finite
/// number, beside which a logit of -inf is a term of 0.
struct Running {
  float largest = -FLT_MAX, sum = 0;

  template <int kCount>
  __device__ __forceinline__ void add(const float (&x)[kCount]) {
    float most = largest;
    for (int i = 0; i < kCount; ++i) most = fmaxf(most, x[i]);
    sum *= term(largest, most);
    largest = most;
    for (int i = 0; i < kCount; ++i) sum += term(x[i], most);
  }
};

/// What a thread has of a row of V: groups of kPack<T> elements. Where V is a number of whole packs these are
/// neighbours; else rows lie anywhere, and neighbours go to neighbouring threads. So the order of sums is a
/// function of V.
template <typename T, bool kPacks>
struct Groups {
  T* row;
  int V;
  bool whole;

  __device__ __forceinline__ int column(int group, int i) const {
    const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
    if constexpr (kPacks)
      return (group * threads + thread) * kPack<T> + i;
    else
      return (group * kPack<T> + i) * threads + thread;
  }
  /// True where the thread has any element of the group.
  __device__ __forceinline__ bool has(int group) const { return column(group, 0) < V; }

  __device__ __forceinline__ void load(int group, float (&x)[kPack<T>]) const {
    if constexpr (kPacks) {
      load_pack(row, column(group, 0), V, whole).floats(x);
    } else {
      for (int i = 0; i < kPack<T>; ++i)
        x[i] = column(group, i) < V ? to_float(row[column(group, i)]) : -INFINITY;
    }
  }
  __device__ __forceinline__ void store(int group, const float (&x)[kPack<T>]) const {
    if constexpr (kPacks) {
      store_pack(row, column(group, 0), V, whole, Pack<T>::of(x));
    } else {
      for (int i = 0; i < kPack<T>; ++i)
        if (column(group, i) < V) put(row[column(group, i)], x[i]);
    }
  }
};

/// One block for a row: loss [n], and the gradient in place of the logits. Least traffic: logits read and,
/// for the gradient, written, once each: so many packs of a row are kept, and what comes behind them (at 1024
/// threads from V = 65537 in BF16 on), as well as rows that are not made of packs, is read again, from the
/// caches mostly.
template <typename T, bool kPacks>
__global__ void __launch_bounds__(kMostThreads) rows_kernel(Rows<T> r) {
  COMPACT_SHARED(float, places, [kMostThreads / kWarp]);
  constexpr int kCached = kPacks ? kKept : 0;
  const std::int64_t n = blockIdx.x;
  const std::int32_t label = r.labels[n];
  const Groups<T, kPacks> row = {r.logits + n * r.ld, r.V, r.whole != 0};
  float x[kPack<T>];
  if (label < 0 || label >= r.V) {
    if (threadIdx.x == 0) r.loss[n] = label == kIgnoreIndex ? 0.0f : NAN;
    for (int i = 0; i < kPack<T>; ++i) x[i] = 0;
    if (r.scale != nullptr)
      for (int group = 0; row.has(group); ++group) row.store(group, x);
    return;  // all threads of the block
  }
  const float target = to_float(row.row[label]);

  Running running;
  Pack<T> kept[kCached > 0 ? kCached : 1];
  for (int k = 0; k < kCached; ++k)
    if (row.has(k)) kept[k] = load_pack(row.row, row.column(k, 0), r.V, row.whole);
  for (int k = 0; k < kCached; ++k)
    if (row.has(k)) {
      kept[k].floats(x);
      running.add(x);
    }
  for (int group = kCached; row.has(group); ++group) {
    row.load(group, x);
    running.add(x);
  }
  const float largest = block_max(running.largest, places);
  const float sum = block_sum(running.sum * term(running.largest, largest), places);
  // In double: the largest logit may be far above the loss.
  if (threadIdx.x == 0)
    r.loss[n] = static_cast<float>(static_cast<double>(largest) - static_cast<double>(target) +
                                   log(static_cast<double>(sum)));
  if (r.scale == nullptr) return;

  const float factor = *r.scale / sum, of_label = (term(target, largest) / sum - 1.0f) * *r.scale;
  const auto write = [&](int group) {
    for (int i = 0; i < kPack<T>; ++i)
      x[i] = row.column(group, i) == label ? of_label : factor * term(x[i], largest);
    row.store(group, x);
  };
  for (int k = 0; k < kCached; ++k)
    if (row.has(k)) {
      kept[k].floats(x);
      write(k);
    }
  for (int group = kCached; row.has(group); ++group) {
    row.load(group, x);
    write(group);
  }
}

/// As many threads as keep a whole row, up to kMostThreads.
unsigned threads_of_row(std::int64_t packs) {
  unsigned threads = kWarp;
  while (threads < kMostThreads && threads * kKept < packs) threads *= 2;
  return threads;
}

}  // namespace

void cross_entropy(Queue& queue, const Tensor& logits, const Tensor& labels, bool gradient, float scale,
                   const Tensor& loss) {
  const std::int64_t n = logits.rows(), V = logits.cols();
  if (n == 0) return;
  const float* live_scale = gradient ? queue.live(scale) : nullptr;
  by_type(logits.dtype, [&](auto type) {
    using T = decltype(type);
    const Rows<T> rows = {logits.as<T>(),  labels.i32(), live_scale,
                          loss.f32(),      logits.ld,    static_cast<std::int32_t>(V),
                          in_packs(logits)};
    const Launch where = {gradient ? "cross_entropy_backward" : "cross_entropy_forward",
                          static_cast<unsigned>(n), threads_of_row(packs_of<T>(V))};
    if (V % kPack<T> == 0)
      launch(queue, where, rows_kernel<T, true>, rows);
    else
      launch(queue, where, rows_kernel<T, false>, rows);
  });
}

}  // namespace compact::cuda
