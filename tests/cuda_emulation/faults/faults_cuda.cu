#include "cuda_emulation/faults/faults.h"

#include "cuda_emulation/sanitizer.h"
#include "kernels/launch_cuda.h"
#include "kernels/mma_cuda.h"

namespace compact::cuda::faults {

namespace {

__global__ void block_exchange_kernel(const float* x, float* y, bool sound) {
  COMPACT_SHARED(float, s, [kThreads]);
  const int t = static_cast<int>(threadIdx.x);
  s[t] = x[t];
  if (sound) __syncthreads();
  y[t] = s[t == 0 ? 0 : t - 1];
}

__global__ void warp_exchange_kernel(const float* x, float* y, bool sound) {
  COMPACT_SHARED(float, s, [kThreads]);
  const int t = static_cast<int>(threadIdx.x);
  s[t] = x[t];
  if (sound) __syncwarp();
  y[t] = s[t % kWarp == 0 ? t : t - 1];
}

__global__ void in_place_kernel(float* x) {
  if (blockIdx.x > 0) x[blockIdx.x] += x[blockIdx.x - 1];
}

__global__ void meet_kernel(Meeting how, float* y) {
  const int t = static_cast<int>(threadIdx.x);
  float v = 1;
  switch (how) {
    case Meeting::Missing:
      if (t > 0) v += __shfl_xor_sync(kAllLanes, v, 1);
      break;
    case Meeting::ElsewhereInWarp:
      if (t > 0)
        v += __shfl_xor_sync(kAllLanes, v, 1);
      else
        v += __shfl_xor_sync(kAllLanes, v, 1);
      break;
    case Meeting::ElsewhereInBlock:
      if (t > 0)
        __syncthreads();
      else
        __syncthreads();
      break;
    case Meeting::Left:
      if (t == 0) return;
      __syncthreads();
      break;
    case Meeting::Mask:
      __syncwarp(0xFFFF);
      break;
    case Meeting::AbsentLane:
      v += __shfl_xor_sync(kAllLanes, v, 16);
      break;
  }
  y[t] = v;
}

__global__ void write_at_kernel(float* x, std::int64_t at) {
  if (threadIdx.x == 0) x[at] = 1;
}
__global__ void read_at_kernel(const float* x, std::int64_t at, float* y) {
  if (threadIdx.x == 0) y[0] = x[at];
}

__global__ void write_shared_kernel(Kind kind, int at) {
  COMPACT_SHARED(float, fixed, [kThreads]);
  COMPACT_DYNAMIC_SHARED(dynamic);
  float* s = kind == Kind::Static ? fixed : reinterpret_cast<float*>(dynamic);
  if (threadIdx.x == 0) s[at] = 1;
}
__global__ void read_shared_kernel(Kind kind, int at, bool fill, float* y) {
  COMPACT_SHARED(float, fixed, [kThreads]);
  COMPACT_DYNAMIC_SHARED(dynamic);
  const int t = static_cast<int>(threadIdx.x);
  float* s = kind == Kind::Static ? fixed : reinterpret_cast<float*>(dynamic);
  if (fill) s[t] = 1;
  __syncthreads();
  y[t] = s[t + at];
}

__global__ void load_vectors_kernel(const float* x, float* y) {
  if (threadIdx.x > 0) return;
  const float4 v = load_vector<float4>(x);
  y[0] = v.x + v.y + v.z + v.w;
}
__global__ void store_vectors_kernel(float* x) {
  if (threadIdx.x == 0) store_vector(x, float4{1, 2, 3, 4});
}

__global__ void copy_kernel(Copying how, const float* x, float* y) {
  COMPACT_SHARED(float, s, [kThreads]);
  const int t = static_cast<int>(threadIdx.x);
  // The first sixteen threads copy, each 16 bytes, in two groups.
  const bool copies = t < kThreads / 4;
  if (copies && t % 2 == 0) copy_async_16(s + 4 * t, x + 4 * t, true);
  copy_async_commit();
  if (copies && t % 2 == 1) copy_async_16(s + 4 * t, x + 4 * t, true);
  if (how != Copying::NotCommitted) copy_async_commit();
  if (how == Copying::NeverWaited) return;
  if (how != Copying::NoWait) {
    if (how == Copying::OneGroupLess)
      copy_async_wait<1>();
    else
      copy_async_wait<0>();
  }
  if (how != Copying::NoBarrier) __syncthreads();
  y[t] = s[t];
  if (how == Copying::RefilledEarly && copies) {
    copy_async_16(s + 4 * t, x, true);
    copy_async_commit();
  }
  if (how == Copying::NotCommitted) copy_async_commit();
  if (how != Copying::RefilledEarly) __syncthreads();
  copy_async_wait<0>();
}

float* data(const Tensor& t) { return t.as<float>(); }

}  // namespace

void block_exchange(Queue& queue, const Tensor& x, const Tensor& y, bool sound) {
  launch(queue, {"block_exchange", 1, kThreads}, block_exchange_kernel, data(x), data(y), sound);
}
void warp_exchange(Queue& queue, const Tensor& x, const Tensor& y, bool sound) {
  launch(queue, {"warp_exchange", 1, kThreads}, warp_exchange_kernel, data(x), data(y), sound);
}
void in_place_across_blocks(Queue& queue, const Tensor& x) {
  launch(queue, {"in_place", static_cast<unsigned>(x.elements()), 1}, in_place_kernel, data(x));
}
void meet(Queue& queue, Meeting how, const Tensor& y) {
  launch(queue, {"meet", 1, how == Meeting::AbsentLane ? 16 : kThreads}, meet_kernel, how, data(y));
}
void write_at(Queue& queue, const Tensor& x, std::int64_t at) {
  launch(queue, {"write_at", 1, kThreads}, write_at_kernel, data(x), at);
}
void read_at(Queue& queue, const Tensor& x, std::int64_t at, const Tensor& y) {
  launch(queue, {"read_at", 1, kThreads}, read_at_kernel, data(x), at, data(y));
}
void write_shared(Queue& queue, Kind kind, int at) {
  launch(queue, {"write_shared", 1, kThreads, kThreads * 4}, write_shared_kernel, kind, at);
}
void read_shared(Queue& queue, Kind kind, int at, bool fill, const Tensor& y) {
  launch(queue, {"read_shared", 1, kThreads, kThreads * 4}, read_shared_kernel, kind, at, fill, data(y));
}
void load_vectors(Queue& queue, const Tensor& x, std::int64_t offset, const Tensor& y) {
  launch(queue, {"load_vectors", 1, kThreads}, load_vectors_kernel, data(x) + offset, data(y));
}
void store_vectors(Queue& queue, const Tensor& x, std::int64_t offset) {
  launch(queue, {"store_vectors", 1, kThreads}, store_vectors_kernel, data(x) + offset);
}
void copy_through_shared(Queue& queue, Copying how, const Tensor& x, const Tensor& y) {
  launch(queue, {"copy_through_shared", 1, kThreads}, copy_kernel, how, data(x), data(y));
}

bool is_sanitized() { return emulation::kSanitized; }

}  // namespace compact::cuda::faults
