#include <type_traits>

#include "kernels/attention_call_cuda.h"

/// Attention by fp32 multiply-adds: for F32, and for BF16 of a width or an alignment that the tensor-core
/// kernels do not take. Square tiles of kTile<kWidth> queries and keys lie in shared memory as fp32, D padded
/// by zeros to kWidth = 64, 128 or 256. Of a product, thread (x, y) of 16 across has rows 4y .. 4y + 3, and
/// of them each 16th column x, x + 16, .. of a [kTile, kTile] one, or columns 64c + 4x .. + 3 of a [kTile,
/// kWidth] one; the 16 threads of a row are half a warp. Floors are those of FLOPs: what is read of memory is
/// used kTile times.
namespace compact::cuda::attention {

namespace {

constexpr int kAcross = 16, kDown = 4;  // threads that share a row; rows of a thread

/// 64 KiB of tiles, whatever the width.
template <int kWidth>
constexpr int kTile = 4096 / kWidth;
template <int kWidth>
constexpr int kThreadsOf = kTile<kWidth>* kAcross / kDown;
/// Floats from row to row: 16 bytes more than the width, so that 8 rows lie in different banks.
template <int kWidth>
constexpr int kPitchOf = kWidth + 4;
template <int kWidth>
constexpr int kWeightPitch = kTile<kWidth> + 4;

/// Bytes of `tiles` tiles and one of weights.
template <int kWidth>
constexpr std::int64_t plain_bytes(int tiles) {
  return 4 * std::int64_t{kTile<kWidth>} * (tiles * kPitchOf<kWidth> + kWeightPitch<kWidth>);
}

__device__ __forceinline__ int across() { return static_cast<int>(threadIdx.x) % kAcross; }
__device__ __forceinline__ int down() { return static_cast<int>(threadIdx.x) / kAcross * kDown; }

/// Rows first .. first + kTile of `from` [rows, D] to a tile, zeros outside.
template <int kWidth, typename T>
__device__ void take_rows(float* to, const T* from, std::int64_t ld, std::int64_t first, std::int64_t rows,
                          std::uint32_t D) {
  constexpr int kThreads = kThreadsOf<kWidth>;
  const int left = static_cast<int>(lesser(rows - first, std::int64_t{kTile<kWidth>}));
  from += first * ld;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kTile<kWidth> * kWidth; i += kThreads) {
    const int row = i / kWidth, column = i % kWidth;
    const bool valid = row < left && column < static_cast<int>(D);
    to[row * kPitchOf<kWidth> + column] = valid ? to_float(from[row * ld + column]) : 0.0f;
  }
}

/// c = a · bᵀ of two tiles: c[i][j] of rows down() + i and across() + 16 j.
template <int kWidth>
__device__ __forceinline__ void dots(float (&c)[kDown][kTile<kWidth> / kAcross], const float* a,
                                     const float* b) {
  constexpr int kN = kTile<kWidth> / kAcross, kPitch = kPitchOf<kWidth>;
#pragma unroll
  for (int i = 0; i < kDown; ++i)
#pragma unroll
    for (int j = 0; j < kN; ++j) c[i][j] = 0;
#pragma unroll 2
  for (int d = 0; d < kWidth; d += 4) {
    float4 left[kDown];
#pragma unroll
    for (int i = 0; i < kDown; ++i) left[i] = load_vector<float4>(a + (down() + i) * kPitch + d);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const float4 right = load_vector<float4>(b + (across() + kAcross * j) * kPitch + d);
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        c[i][j] = fmaf(left[i].x, right.x, c[i][j]);
        c[i][j] = fmaf(left[i].y, right.y, c[i][j]);
        c[i][j] = fmaf(left[i].z, right.z, c[i][j]);
        c[i][j] = fmaf(left[i].w, right.w, c[i][j]);
      }
    }
  }
}

template <int kWidth>
__device__ __forceinline__ void put_weights(float* to, const float (&w)[kDown][kTile<kWidth> / kAcross]) {
  __syncwarp();  // the half warp that reads them is the one that writes them
#pragma unroll
  for (int i = 0; i < kDown; ++i)
#pragma unroll
    for (int j = 0; j < kTile<kWidth> / kAcross; ++j)
      to[(down() + i) * kWeightPitch<kWidth> + across() + kAcross * j] = w[i][j];
  __syncwarp();
}

/// c += w · b: c[i][4 c + e] of row down() + i, column 64 c + 4 across() + e.
template <int kWidth>
__device__ __forceinline__ void add_weighted(float (&c)[kDown][kWidth / kAcross], const float* w,
                                             const float* b) {
#pragma unroll 1
  for (int k = 0; k < kTile<kWidth>; k += 4) {
    float left[kDown][4];
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      const float4 four = load_vector<float4>(w + (down() + i) * kWeightPitch<kWidth> + k);
      left[i][0] = four.x, left[i][1] = four.y, left[i][2] = four.z, left[i][3] = four.w;
    }
#pragma unroll
    for (int row = 0; row < 4; ++row)
#pragma unroll
      for (int n = 0; n < kWidth / kAcross; n += 4) {
        const float4 right =
            load_vector<float4>(b + (k + row) * kPitchOf<kWidth> + n * kAcross + 4 * across());
#pragma unroll
        for (int i = 0; i < kDown; ++i) {
          c[i][n] = fmaf(left[i][row], right.x, c[i][n]);
          c[i][n + 1] = fmaf(left[i][row], right.y, c[i][n + 1]);
          c[i][n + 2] = fmaf(left[i][row], right.z, c[i][n + 2]);
          c[i][n + 3] = fmaf(left[i][row], right.w, c[i][n + 3]);
        }
      }
  }
}

/// The sum (or maximum) of the 16 threads of a row, in all of them.
__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
  for (int by = 1; by < kAcross; by *= 2) x += __shfl_xor_sync(kAllLanes, x, by);
  return x;
}
__device__ __forceinline__ float row_max(float x) {
#pragma unroll
  for (int by = 1; by < kAcross; by *= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, by));
  return x;
}

/// Writes c · factor to rows first .. of `to` [rows, D].
template <int kWidth, typename T>
__device__ void write_rows(T* to, std::int64_t ld, std::int64_t first, std::int64_t rows, std::uint32_t D,
                           const float (&c)[kDown][kWidth / kAcross], const float (&factor)[kDown]) {
#pragma unroll
  for (int i = 0; i < kDown; ++i)
#pragma unroll
    for (int n = 0; n < kWidth / kAcross; ++n) {
      const int column = n / 4 * 64 + 4 * across() + n % 4;
      if (first + down() + i < rows && column < static_cast<int>(D))
        put(to[(first + down() + i) * ld + column], c[i][n] * factor[i]);
    }
}

/// A block makes kTile rows of out. FLOPs: 4 · D for each visible pair.
template <int kWidth, typename Element>
__global__ void __launch_bounds__(kThreadsOf<kWidth>, 1) forward_kernel(Call<Element> call) {
  constexpr int kN = kTile<kWidth> / kAcross, kSize = kTile<kWidth> * kPitchOf<kWidth>;
  COMPACT_DYNAMIC_SHARED(memory);
  float* const queries = reinterpret_cast<float*>(memory);
  float* const keys = queries + kSize;
  float* const values = keys + kSize;
  float* const weights = values + kSize;
  const Place place = place_of(call.H, call.B, call.tiles, call.at_once);
  const std::int64_t first = std::int64_t{call.tiles - 1 - place.tile} * kTile<kWidth>,
                     past = call.Tkv - call.Tq, all_keys = lesser(call.Tkv, past + first + kTile<kWidth>),
                     row0 = place.sequence * call.Tq, kv_row0 = place.sequence * call.Tkv;
  const std::uint32_t column = place.head * call.D, kv_column = place.head / (call.H / call.Hkv) * call.D;

  take_rows<kWidth>(queries, call.q + row0 * call.ldq + column, call.ldq, first, call.Tq, call.D);
  float sums[kDown][kWidth / kAcross] = {}, top[kDown], total[kDown];
#pragma unroll
  for (int i = 0; i < kDown; ++i) top[i] = -INFINITY, total[i] = 0;
  for (std::int64_t key = 0; key < all_keys; key += kTile<kWidth>) {
    __syncthreads();
    take_rows<kWidth>(keys, call.k + kv_row0 * call.ldk + kv_column, call.ldk, key, call.Tkv, call.D);
    take_rows<kWidth>(values, call.v + kv_row0 * call.ldv + kv_column, call.ldv, key, call.Tkv, call.D);
    __syncthreads();
    float s[kDown][kN];
    dots<kWidth>(s, queries, keys);
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      const std::int64_t position = past + first + down() + i;
      float most = top[i];
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        // A query that is there sees no key that is not.
        if (key + across() + kAcross * j > position) s[i][j] = -INFINITY;
        most = fmaxf(most, s[i][j]);
      }
      most = row_max(most);
      // The first tile shows every query a key, so that `most` is a number from then on.
      const float factor = fast_exp2((top[i] - most) * call.scale_log2);
      top[i] = most;
      total[i] *= factor;
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        s[i][j] = fast_exp2((s[i][j] - most) * call.scale_log2);
        total[i] += s[i][j];
      }
#pragma unroll
      for (int n = 0; n < kWidth / kAcross; ++n) sums[i][n] *= factor;
    }
    put_weights<kWidth>(weights, s);
    add_weighted<kWidth>(sums, weights, values);
  }
  float inverse[kDown];
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
    const float sum = row_sum(total[i]);
    inverse[i] = 1.0f / sum;
    const std::int64_t query = first + down() + i;
    if (across() == 0 && query < call.Tq)
      call.lse[(std::int64_t{place.sequence} * call.H + place.head) * call.Tq + query] =
          fmaf(top[i], call.scale, logf(sum));
  }
  write_rows<kWidth>(call.out + row0 * call.ldout + column, call.ldout, first, call.Tq, call.D, sums,
                     inverse);
}

/// The weight of a visible pair from its unscaled score.
__device__ __forceinline__ float weight_of(float score, float scale, float lse) {
  return fast_exp2(fmaf(score, scale, -lse) * kLog2E);
}

/// A block makes kTile rows of dq and of delta. FLOPs: 6 · D for each visible pair.
template <int kWidth, typename Element>
__global__ void __launch_bounds__(kThreadsOf<kWidth>, 1) dq_kernel(Call<Element> call) {
  constexpr int kN = kTile<kWidth> / kAcross, kSize = kTile<kWidth> * kPitchOf<kWidth>;
  COMPACT_DYNAMIC_SHARED(memory);
  float* const queries = reinterpret_cast<float*>(memory);
  float* const douts = queries + kSize;
  float* const keys = douts + kSize;
  float* const values = keys + kSize;
  float* const weights = values + kSize;
  const Place place = place_of(call.H, call.B, call.tiles, call.at_once);
  const std::int64_t T = call.Tq, first = std::int64_t{call.tiles - 1 - place.tile} * kTile<kWidth>,
                     row0 = place.sequence * T, all_keys = lesser(T, first + kTile<kWidth>);
  const std::uint32_t column = place.head * call.D, kv_column = place.head / (call.H / call.Hkv) * call.D;
  const Element* const out = call.out + row0 * call.ldout + column;

  take_rows<kWidth>(queries, call.q + row0 * call.ldq + column, call.ldq, first, T, call.D);
  take_rows<kWidth>(douts, call.dout + row0 * call.lddout + column, call.lddout, first, T, call.D);
  __syncthreads();
  float lse[kDown], delta[kDown];
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
    const std::int64_t query = first + down() + i,
                       at = (std::int64_t{place.sequence} * call.H + place.head) * T + query;
    float sum = 0;
    if (query < T)
      for (std::uint32_t d = static_cast<std::uint32_t>(across()); d < call.D; d += kAcross)
        sum = fmaf(douts[(down() + i) * kPitchOf<kWidth> + static_cast<int>(d)],
                   to_float(out[query * call.ldout + d]), sum);
    delta[i] = row_sum(sum);
    if (across() == 0 && query < T) call.delta[at] = delta[i];
    lse[i] = query < T ? call.lse[at] : INFINITY;  // weights of 0
  }
  float sums[kDown][kWidth / kAcross] = {};
  for (std::int64_t key = 0; key < all_keys; key += kTile<kWidth>) {
    __syncthreads();
    take_rows<kWidth>(keys, call.k + row0 * call.ldk + kv_column, call.ldk, key, T, call.D);
    take_rows<kWidth>(values, call.v + row0 * call.ldv + kv_column, call.ldv, key, T, call.D);
    __syncthreads();
    float p[kDown][kN], ds[kDown][kN];
    dots<kWidth>(p, queries, keys);
    dots<kWidth>(ds, douts, values);
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const bool visible = key + across() + kAcross * j <= first + down() + i;
        const float weight = visible ? weight_of(p[i][j], call.scale, lse[i]) : 0.0f;
        ds[i][j] = weight * (ds[i][j] - delta[i]);
      }
    put_weights<kWidth>(weights, ds);
    add_weighted<kWidth>(sums, weights, keys);
  }
  const float factor[kDown] = {call.scale, call.scale, call.scale, call.scale};
  write_rows<kWidth>(call.dq + row0 * call.lddq + column, call.lddq, first, T, call.D, sums, factor);
}

/// A block makes kTile rows of dk and dv of one key/value head, over the query heads of its group. Scores
/// stand transposed, keys down and queries across. FLOPs: 8 · D for each visible pair.
template <int kWidth, typename Element>
__global__ void __launch_bounds__(kThreadsOf<kWidth>, 1) dkv_kernel(Call<Element> call) {
  constexpr int kN = kTile<kWidth> / kAcross, kSize = kTile<kWidth> * kPitchOf<kWidth>;
  COMPACT_DYNAMIC_SHARED(memory);
  float* const keys = reinterpret_cast<float*>(memory);
  float* const values = keys + kSize;
  float* const queries = values + kSize;
  float* const douts = queries + kSize;
  float* const weights = douts + kSize;
  const std::uint32_t group = call.H / call.Hkv;
  const Place place = place_of(call.Hkv, call.B, call.tiles, (call.at_once + group - 1) / group);
  const std::int64_t T = call.Tq, first = std::int64_t{place.tile} * kTile<kWidth>, row0 = place.sequence * T;
  const std::uint32_t column = place.head * call.D;

  take_rows<kWidth>(keys, call.k + row0 * call.ldk + column, call.ldk, first, T, call.D);
  take_rows<kWidth>(values, call.v + row0 * call.ldv + column, call.ldv, first, T, call.D);
  float dk[kDown][kWidth / kAcross] = {}, dv[kDown][kWidth / kAcross] = {};
  for (std::uint32_t head = place.head * group; head < (place.head + 1) * group; ++head) {
    const Element* const q = call.q + row0 * call.ldq + head * call.D;
    const Element* const dout = call.dout + row0 * call.lddout + head * call.D;
    const std::int64_t numbers = (std::int64_t{place.sequence} * call.H + head) * T;
    for (std::int64_t tile = first; tile < T; tile += kTile<kWidth>) {
      __syncthreads();
      take_rows<kWidth>(queries, q, call.ldq, tile, T, call.D);
      take_rows<kWidth>(douts, dout, call.lddout, tile, T, call.D);
      __syncthreads();
      float p[kDown][kN], ds[kDown][kN];
      dots<kWidth>(p, keys, queries);
      dots<kWidth>(ds, values, douts);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const std::int64_t query = tile + across() + kAcross * j;
        const float lse = query < T ? call.lse[numbers + query] : INFINITY;  // weights of 0
        const float delta = query < T ? call.delta[numbers + query] : 0;
#pragma unroll
        for (int i = 0; i < kDown; ++i) {
          const bool visible = first + down() + i <= query;
          p[i][j] = visible ? weight_of(p[i][j], call.scale, lse) : 0.0f;
          ds[i][j] = p[i][j] * (ds[i][j] - delta);
        }
      }
      put_weights<kWidth>(weights, p);
      add_weighted<kWidth>(dv, weights, douts);
      put_weights<kWidth>(weights, ds);
      add_weighted<kWidth>(dk, weights, queries);
    }
  }
  const float one[kDown] = {1, 1, 1, 1}, factor[kDown] = {call.scale, call.scale, call.scale, call.scale};
  write_rows<kWidth>(call.dk + row0 * call.lddk + column, call.lddk, first, T, call.D, dk, factor);
  write_rows<kWidth>(call.dv + row0 * call.lddv + column, call.lddv, first, T, call.D, dv, one);
}

template <typename F>
void by_plain_width(std::uint32_t D, F&& f) {
  if (D <= 64)
    f(std::integral_constant<int, 64>{});
  else if (D <= 128)
    f(std::integral_constant<int, 128>{});
  else
    f(std::integral_constant<int, 256>{});
}

template <typename T>
void run_forward(Queue& queue, Call<T> call) {
  by_plain_width(call.D, [&](auto width) {
    call.tiles = blocks_for(call.Tq, kTile<width()>);
    launch(queue,
           {"attention_forward", call.tiles * call.B * call.H, kThreadsOf<width()>, plain_bytes<width()>(3)},
           forward_kernel<width(), T>, call);
  });
}

template <typename T>
void run_backward(Queue& queue, Call<T> call) {
  by_plain_width(call.D, [&](auto width) {
    call.tiles = blocks_for(call.Tq, kTile<width()>);
    launch(
        queue,
        {"attention_backward dq", call.tiles * call.B * call.H, kThreadsOf<width()>, plain_bytes<width()>(4)},
        dq_kernel<width(), T>, call);
    launch(queue,
           {"attention_backward dk dv", call.tiles * call.B * call.Hkv, kThreadsOf<width()>,
            plain_bytes<width()>(4)},
           dkv_kernel<width(), T>, call);
  });
}

}  // namespace

void forward_plain(Queue& queue, const Call<float>& call) { run_forward(queue, call); }
void forward_plain(Queue& queue, const Call<Bf16>& call) { run_forward(queue, call); }
void backward_plain(Queue& queue, const Call<float>& call) { run_backward(queue, call); }
void backward_plain(Queue& queue, const Call<Bf16>& call) { run_backward(queue, call); }

}  // namespace compact::cuda::attention
