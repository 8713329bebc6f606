#include "kernels/rmsnorm_cuda.h"

#include <type_traits>

#include "kernels/by_type.h"
#include "kernels/launch_cuda.h"
#include "kernels/pack_cuda.h"
#include "kernels/reduce_cuda.h"

namespace compact::cuda {

namespace {

// A row is taken by a group of 32 to 256 threads; a block of 256 is as many groups as fit. Thread t has the
// packs t, t + threads, ... of its row, the first kItems of them in registers. The order of every sum depends
// on C alone: whether accesses are whole changes no bit.
constexpr int kThreads = 256;

int threads_of_row(std::int64_t packs) {
  int threads = kWarp;
  while (threads < packs && threads < kThreads) threads *= 2;
  return threads;
}

template <typename T>
struct Forward {
  const T *x, *delta;  // delta null: the plain norm
  T* sum;
  const T* w;
  T* y;
  float* rstd;
  std::int64_t ldx, ldd, lds, ldy, N, C;
  float eps;
  std::int32_t whole;
};

/// The pack at `column` of the row that is to be normed: of x, or of x + delta, which is written to sum.
template <typename T>
__device__ __forceinline__ Pack<T> normed_pack(const Forward<T>& f, std::int64_t n, std::int64_t column) {
  const bool whole = f.whole != 0;
  const Pack<T> x = load_pack(f.x + n * f.ldx, column, f.C, whole);
  if (f.delta == nullptr) return x;
  float a[kPack<T>], b[kPack<T>];
  x.floats(a);
  load_pack(f.delta + n * f.ldd, column, f.C, whole).floats(b);
  for (int i = 0; i < kPack<T>; ++i) a[i] += b[i];
  const Pack<T> sum = Pack<T>::of(a);  // rounded to its type before it is squared
  store_pack(f.sum + n * f.lds, column, f.C, whole, sum);
  return sum;
}

/// Least traffic of N C elements: x read and y written, with delta also delta read and sum written.
template <typename T, int kItems>
__global__ void __launch_bounds__(kThreads) forward_kernel(Forward<T> f) {
  COMPACT_SHARED(float, places, [kThreads / kWarp]);
  const int threads = static_cast<int>(blockDim.x);
  const std::int64_t n = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y, packs = packs_of<T>(f.C);
  const bool there = n < f.N, whole = f.whole != 0;
  const std::int64_t first = there ? threadIdx.x : packs;
  Pack<T> row[kItems];
  float squares = 0;
  const auto add_squares = [&](const Pack<T>& pack) {
    float x[kPack<T>];
    pack.floats(x);
    for (int i = 0; i < kPack<T>; ++i) squares = fmaf(x[i], x[i], squares);
  };
  for (int k = 0; k < kItems; ++k)
    if (first + k * threads < packs) row[k] = normed_pack(f, n, (first + k * threads) * kPack<T>);
  for (int k = 0; k < kItems; ++k)
    if (first + k * threads < packs) add_squares(row[k]);
  for (std::int64_t p = first + kItems * threads; p < packs; p += threads)
    add_squares(normed_pack(f, n, p * kPack<T>));

  const float mean = group_sum(squares, threads, places) / static_cast<float>(f.C);
  const float rstd = 1.0f / sqrtf(mean + f.eps);
  if (there && threadIdx.x == 0) f.rstd[n] = rstd;
  const auto write = [&](const Pack<T>& pack, std::int64_t column) {
    float x[kPack<T>], w[kPack<T>];
    pack.floats(x);
    load_pack(f.w, column, f.C, whole).floats(w);
    for (int i = 0; i < kPack<T>; ++i) x[i] = x[i] * rstd * w[i];
    store_pack(f.y + n * f.ldy, column, f.C, whole, Pack<T>::of(x));
  };
  for (int k = 0; k < kItems; ++k)
    if (first + k * threads < packs) write(row[k], (first + k * threads) * kPack<T>);
  const T* again = f.delta == nullptr ? f.x + n * f.ldx : f.sum + n * f.lds;  // what this thread wrote
  for (std::int64_t p = first + kItems * threads; p < packs; p += threads)
    write(load_pack(again, p * kPack<T>, f.C, whole), p * kPack<T>);
}

template <typename T>
struct Backward {
  const T *dy, *x, *w;
  const float* rstd;
  T* dx;
  float* partial;
  std::int64_t ldy, ldx, ldd, N, C;
  std::int64_t whole;
};

/// What moves dx and the sums for dw at one pack.
template <typename T>
__device__ __forceinline__ void move_pack(const Backward<T>& b, std::int64_t n, std::int64_t column,
                                          const Pack<T>& dys, const Pack<T>& xs, const float* w, float rstd,
                                          float mean, float* sums) {
  float dy[kPack<T>], x[kPack<T>], dx[kPack<T>];
  dys.floats(dy);
  xs.floats(x);
  load_pack(b.dx + n * b.ldd, column, b.C, b.whole != 0).floats(dx);
  for (int i = 0; i < kPack<T>; ++i) {
    const float normal = x[i] * rstd;
    sums[i] = fmaf(dy[i], normal, sums[i]);
    dx[i] = fmaf(rstd, dy[i] * w[i] - normal * mean, dx[i]);
  }
  store_pack(b.dx + n * b.ldd, column, b.C, b.whole != 0, Pack<T>::of(dx));
}

/// The part of the row's dy · w · x̂ that one pack has.
template <typename T>
__device__ __forceinline__ float dot_pack(const Pack<T>& dys, const Pack<T>& xs, const float* w, float rstd,
                                          float dot) {
  float dy[kPack<T>], x[kPack<T>];
  dys.floats(dy);
  xs.floats(x);
  for (int i = 0; i < kPack<T>; ++i) dot = fmaf(dy[i] * w[i], x[i] * rstd, dot);
  return dot;
}

/// dx += rstd (dy w - x̂ mean(dy w x̂)), partial [gridDim.x, C] = sums of dy x̂ over a chunk of rows; group y
/// of the block takes every blockDim.y-th row. Rows of up to kItems · blockDim.x packs. Least traffic: dy, x
/// and dx read, dx written, 4 N C elements; each is moved once.
template <typename T, int kItems>
__global__ void __launch_bounds__(kThreads) backward_kernel(Backward<T> b) {
  COMPACT_SHARED(float, places, [kThreads / kWarp]);
  COMPACT_SHARED(float, others, [kThreads * kPack<T>]);
  const int threads = static_cast<int>(blockDim.x), groups = static_cast<int>(blockDim.y);
  const std::int64_t packs = packs_of<T>(b.C), first = threadIdx.x;
  const std::int64_t begin = b.N * blockIdx.x / gridDim.x, end = b.N * (blockIdx.x + 1) / gridDim.x;
  float w[kItems][kPack<T>], sums[kItems][kPack<T>];
  for (int k = 0; k < kItems; ++k) {
    for (int i = 0; i < kPack<T>; ++i) w[k][i] = sums[k][i] = 0;
    if (first + k * threads < packs)
      load_pack(b.w, (first + k * threads) * kPack<T>, b.C, b.whole != 0).floats(w[k]);
  }
  for (std::int64_t at = begin; at < end; at += groups) {
    const std::int64_t n = at + threadIdx.y;
    const bool there = n < end;
    const float rstd = there ? b.rstd[n] : 0;
    Pack<T> dy[kItems], x[kItems];
    for (int k = 0; k < kItems; ++k)
      if (there && first + k * threads < packs) {
        const std::int64_t column = (first + k * threads) * kPack<T>;
        dy[k] = load_pack(b.dy + n * b.ldy, column, b.C, b.whole != 0);
        x[k] = load_pack(b.x + n * b.ldx, column, b.C, b.whole != 0);
      }
    float dot = 0;
    for (int k = 0; k < kItems; ++k)
      if (there && first + k * threads < packs) dot = dot_pack(dy[k], x[k], w[k], rstd, dot);
    const float mean = group_sum(dot, threads, places) / static_cast<float>(b.C);
    for (int k = 0; k < kItems; ++k)
      if (there && first + k * threads < packs)
        move_pack(b, n, (first + k * threads) * kPack<T>, dy[k], x[k], w[k], rstd, mean, sums[k]);
  }
  // The groups' sums, in the order of the groups.
  float* own = b.partial + std::int64_t{blockIdx.x} * b.C;
  for (int k = 0; k < kItems; ++k) {
    __syncthreads();
    for (int i = 0; i < kPack<T>; ++i)
      others[(i * groups + static_cast<int>(threadIdx.y)) * threads + static_cast<int>(threadIdx.x)] =
          sums[k][i];
    __syncthreads();
    if (threadIdx.y == 0 && first + k * threads < packs)
      for (int i = 0; i < kPack<T>; ++i) {
        const std::int64_t column = (first + k * threads) * kPack<T> + i;
        float sum = 0;
        for (int group = 0; group < groups; ++group)
          sum += others[(i * groups + group) * threads + static_cast<int>(threadIdx.x)];
        if (column < b.C) own[column] = sum;
      }
  }
}

/// The same for rows that no registers hold: dy and x are read twice, the sums are kept in `partial`.
template <typename T>
__global__ void __launch_bounds__(kThreads) long_backward_kernel(Backward<T> b) {
  COMPACT_SHARED(float, places, [kThreads / kWarp]);
  const bool whole = b.whole != 0;
  const std::int64_t packs = packs_of<T>(b.C);
  const std::int64_t begin = b.N * blockIdx.x / gridDim.x, end = b.N * (blockIdx.x + 1) / gridDim.x;
  float* own = b.partial + std::int64_t{blockIdx.x} * b.C;
  for (std::int64_t p = threadIdx.x; p < packs; p += kThreads)
    for (int i = 0; i < kPack<T>; ++i)
      if (p * kPack<T> + i < b.C) own[p * kPack<T> + i] = 0;
  for (std::int64_t n = begin; n < end; ++n) {
    const float rstd = b.rstd[n];
    float dot = 0, w[kPack<T>], sums[kPack<T>];
    for (std::int64_t p = threadIdx.x; p < packs; p += kThreads) {
      load_pack(b.w, p * kPack<T>, b.C, whole).floats(w);
      dot = dot_pack(load_pack(b.dy + n * b.ldy, p * kPack<T>, b.C, whole),
                     load_pack(b.x + n * b.ldx, p * kPack<T>, b.C, whole), w, rstd, dot);
    }
    const float mean = group_sum(dot, kThreads, places) / static_cast<float>(b.C);
    for (std::int64_t p = threadIdx.x; p < packs; p += kThreads) {
      const std::int64_t column = p * kPack<T>;
      load_pack(b.w, column, b.C, whole).floats(w);
      for (int i = 0; i < kPack<T>; ++i) sums[i] = column + i < b.C ? own[column + i] : 0;
      move_pack(b, n, column, load_pack(b.dy + n * b.ldy, column, b.C, whole),
                load_pack(b.x + n * b.ldx, column, b.C, whole), w, rstd, mean, sums);
      for (int i = 0; i < kPack<T>; ++i)
        if (column + i < b.C) own[column + i] = sums[i];
    }
  }
}

constexpr int kSlices = 16;

/// dw [C] += the sums of the columns of partial [chunks, C]: of 32 columns each thread adds every 16th chunk,
/// then the 16 sums are added. Reads 4 chunks C bytes, mostly from the L2 cache where they were just written.
template <typename T>
__global__ void __launch_bounds__(kWarp* kSlices)
    add_dw_kernel(const float* partial, std::int64_t chunks, std::int64_t C, T* dw) {
  COMPACT_SHARED(float, sums, [kSlices][kWarp]);
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0;
  if (column < C)
    for (std::int64_t chunk = threadIdx.y; chunk < chunks; chunk += kSlices)
      sum += partial[chunk * C + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= C) return;
  for (int slice = 1; slice < kSlices; ++slice) sum += sums[slice][threadIdx.x];
  put(dw[column], to_float(dw[column]) + sum);
}

/// Calls f with the smallest of 1, 2 and 4 items that hold `packs`, or with 4 where none does.
template <typename F>
void by_items(std::int64_t packs, int threads, F&& f) {
  if (packs <= threads)
    f(std::integral_constant<int, 1>());
  else if (packs <= 2 * threads)
    f(std::integral_constant<int, 2>());
  else
    f(std::integral_constant<int, 4>());
}

}  // namespace

void rmsnorm_forward(Queue& queue, const Tensor& x, const Tensor& delta, const Tensor& sum, const Tensor& w,
                     float eps, const Tensor& y, const Tensor& rstd) {
  const std::int64_t N = x.rows(), C = x.cols();
  if (N == 0) return;
  const bool fused = !delta.empty();
  const bool whole =
      in_packs(x) && in_packs(w) && in_packs(y) && (!fused || (in_packs(delta) && in_packs(sum)));
  by_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    const std::int64_t packs = packs_of<T>(C);
    const int threads = threads_of_row(packs), rows = kThreads / threads;
    const Forward<T> f = {x.as<T>(), delta.as<T>(), sum.as<T>(), w.as<T>(), y.as<T>(), rstd.f32(), x.ld,
                          delta.ld,  sum.ld,        y.ld,        N,         C,         eps,        whole};
    by_items(packs, threads, [&](auto items) {
      launch(queue,
             {fused ? "residual_rmsnorm_forward" : "rmsnorm_forward", blocks_for(N, rows),
              dim3(static_cast<unsigned>(threads), static_cast<unsigned>(rows))},
             forward_kernel<T, items()>, f);
    });
  });
}

void rmsnorm_backward(Queue& queue, const Tensor& dy, const Tensor& x, const Tensor& w, const Tensor& rstd,
                      const Tensor& dx, const Tensor& partial, const Tensor& dw) {
  const std::int64_t N = x.rows(), C = x.cols(), chunks = partial.rows();
  if (C == 0) return;
  const char* op = "rmsnorm_backward";
  const bool whole = in_packs(dy) && in_packs(x) && in_packs(w) && in_packs(dx);
  by_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    const std::int64_t packs = packs_of<T>(C);
    const int threads = threads_of_row(packs), rows = kThreads / threads;
    const Backward<T> b = {dy.as<T>(), x.as<T>(), w.as<T>(), rstd.f32(), dx.as<T>(), partial.f32(),
                           dy.ld,      x.ld,      dx.ld,     N,          C,          whole};
    if (packs > 4 * threads)
      return launch(queue, {op, static_cast<unsigned>(chunks), kThreads}, long_backward_kernel<T>, b);
    by_items(packs, threads, [&](auto items) {
      launch(queue,
             {op, static_cast<unsigned>(chunks),
              dim3(static_cast<unsigned>(threads), static_cast<unsigned>(rows))},
             backward_kernel<T, items()>, b);
    });
  });
  by_type(dw.dtype, [&](auto type) {
    using T = decltype(type);
    launch(queue, {op, blocks_for(C, kWarp), dim3(kWarp, kSlices)}, add_dw_kernel<T>, partial.f32(), chunks,
           C, dw.as<T>());
  });
}

}  // namespace compact::cuda
