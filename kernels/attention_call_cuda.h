#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "compact/cuda/queue.h"
#include "kernels/launch_cuda.h"

/// What the attention kernels share: their argument, and which tile a block works on.
namespace compact::cuda::attention {

inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;

/// One attention. Shapes as in compact/kernels/attention.h, rows of views ld apart; delta [B, H, T].
/// Without gaps between members, so that launches can be compared by their bytes.
template <typename T>
struct Call {
  const T *q, *k, *v, *dout;
  T *out, *dq, *dk, *dv;
  float *lse, *delta;
  std::int64_t ldq, ldk, ldv, ldout, lddout, lddq, lddk, lddv;
  std::int64_t Tq, Tkv;
  std::uint32_t B, H, Hkv, D;
  float scale, scale_log2;       ///< 1 / sqrt(D), and that in units of log2
  std::uint32_t at_once, tiles;  ///< heads whose blocks run side by side (place_of), and blocks of each
};

/// The tensor-core kernels; they take what takes_tensor_cores (attention_cuda.cu) lets through.
void forward_bf16(Queue& queue, const Call<Bf16>& call);
void backward_bf16(Queue& queue, Call<Bf16> call);
/// The others; they take any view with D <= kMostHeadWidth.
void forward_plain(Queue& queue, const Call<float>& call);
void forward_plain(Queue& queue, const Call<Bf16>& call);
void backward_plain(Queue& queue, const Call<float>& call);
void backward_plain(Queue& queue, const Call<Bf16>& call);

template <typename T>
__device__ __forceinline__ T lesser(T a, T b) {
  return b < a ? b : a;
}

/// Where a block works: blocks of all `heads` heads of all sequences, `tiles` each.
struct Place {
  std::uint32_t sequence, head, tile;
};

/// Tiles of equal number come one after another for `at_once` heads, so that the longest of them can come
/// first, and the keys and values of those heads stay in the L2 cache while they are read again.
__device__ __forceinline__ Place place_of(std::uint32_t heads, std::uint32_t sequences, std::uint32_t tiles,
                                          std::uint32_t at_once) {
  const std::uint32_t all = heads * sequences, span = at_once * tiles, begin = blockIdx.x / span * at_once,
                      here = lesser(at_once, all - begin), rest = blockIdx.x % span,
                      pair = begin + rest % here;
  return {pair / heads, pair % heads, rest / here};
}

}  // namespace compact::cuda::attention
