#include "kernels/global_norm_cuda.h"

#include <cmath>

#include "kernels/launch_cuda.h"
#include "kernels/pack_cuda.h"
#include "kernels/reduce_cuda.h"

namespace compact::cuda {

namespace {

constexpr int kThreads = 256, kMostThreads = 1024;
constexpr int kBatch = 64;  // tensors of one launch

struct Part {
  const void* data;
  std::int64_t elements;
  std::int64_t chunks_before;  // of this launch
  std::int64_t is_bf16;
};
struct Batch {
  Part parts[kBatch];
  std::int64_t count;
};

/// The squares of the block's chunk of one tensor, packs of it dealt to the threads in turn.
template <typename T>
__device__ __forceinline__ double squares_of(const Part& part, std::int64_t chunk) {
  const std::int64_t begin = chunk * kNormChunk;
  const std::int64_t end = begin + kNormChunk < part.elements ? begin + kNormChunk : part.elements;
  const T* data = static_cast<const T*>(part.data);
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  constexpr int kAhead = 4;  // packs on their way at once
  double sum = 0;
  for (std::int64_t at = begin + threadIdx.x * kPack<T>; at < end; at += kAhead * kThreads * kPack<T>) {
    Pack<T> packs[kAhead];
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t column = at + k * kThreads * kPack<T>;
      // Beyond the end come zeros.
      packs[k] = load_pack(data, column, end, aligned && column + kPack<T> <= end);
    }
    for (int k = 0; k < kAhead; ++k) {
      float x[kPack<T>];
      packs[k].floats(x);
      for (int i = 0; i < kPack<T>; ++i) sum = fma(static_cast<double>(x[i]), static_cast<double>(x[i]), sum);
    }
  }
  return sum;
}

/// partials [gridDim.x]: one chunk of one tensor by each block. Least traffic: every element once.
__global__ void __launch_bounds__(kThreads) squares_kernel(Batch batch, double* partials) {
  COMPACT_SHARED(double, places, [kThreads / kWarp]);
  int i = 0;
  while (i + 1 < batch.count && batch.parts[i + 1].chunks_before <= blockIdx.x) ++i;
  const Part& part = batch.parts[i];
  const std::int64_t chunk = blockIdx.x - part.chunks_before;
  const double own = part.is_bf16 != 0 ? squares_of<Bf16>(part, chunk) : squares_of<float>(part, chunk);
  const double sum = block_sum(own, places);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/// norm [1] = the root of the sum of partials [count]; one block.
__global__ void __launch_bounds__(kMostThreads)
    norm_kernel(const double* partials, std::int64_t count, float* norm) {
  COMPACT_SHARED(double, places, [kMostThreads / kWarp]);
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partials[i];
  sum = block_sum(sum, places);
  if (threadIdx.x == 0) *norm = static_cast<float>(sqrt(sum));
}

}  // namespace

void global_norm(Queue& queue, std::span<const Tensor> tensors, const Tensor& partials, const Tensor& norm) {
  std::int64_t done = 0, chunks = 0;  // of earlier launches, of this one
  Batch batch = {};
  const auto flush = [&] {
    if (batch.count == 0) return;
    launch(queue, {"global_norm", static_cast<unsigned>(chunks), kThreads}, squares_kernel, batch,
           partials.as<double>() + done);
    done += chunks;
    chunks = 0;
    batch = {};
  };
  for (const Tensor& t : tensors) {
    if (t.elements() == 0) continue;
    batch.parts[batch.count++] = {t.data, t.elements(), chunks, t.dtype == DType::BF16};
    chunks += norm_chunks(t);
    if (batch.count == kBatch) flush();
  }
  flush();
  launch(queue, {"global_norm", 1, done > kMostThreads ? kMostThreads : kThreads}, norm_kernel,
         partials.as<double>(), done, norm.f32());
}

}  // namespace compact::cuda
