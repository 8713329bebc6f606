#include <type_traits>

#include "kernels/attention_mma_cuda.h"

namespace compact::cuda::attention {

namespace {

/// A row's exponents are relative to a reference, which follows the running maximum only when that is more
/// than this above it (in units of log2): weights stay below 2^8, and sums are seldom scaled anew.
constexpr float kSlack = 8;

/// A block makes 64 · kGroups rows of out, one key tile after another, with a running reference and sum.
/// FLOPs: 4 · D for each visible pair (two products), and those of the tiles on the diagonal that are not
/// visible. Least traffic: q, k, v and out once, lse; k and v are read again by each query tile, from L2.
template <int kWidth, int kGroups>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(Call<Bf16> call) {
  constexpr int kRows = 16 * kGroups * kWarps, kKeys = kStreamed<kWidth>, kN = kKeys / 8;
  COMPACT_DYNAMIC_SHARED(memory);
  Bf16* const queries = reinterpret_cast<Bf16*>(memory);   // [kRows]
  Bf16* const keys = queries + kRows * kPitch<kWidth>;     // [2][kKeys]
  Bf16* const values = keys + 2 * kKeys * kPitch<kWidth>;  // [2][kKeys]
  const Place place = place_of(call.H, call.B, call.tiles, call.at_once);
  // The last tile sees the most keys and comes first.
  const std::int64_t first = std::int64_t{call.tiles - 1 - place.tile} * kRows, past = call.Tkv - call.Tq,
                     all_keys = lesser(call.Tkv, past + first + kRows);
  const std::uint32_t kv_head = place.head / (call.H / call.Hkv);
  const std::int64_t own = first + warp_of_block() * 16 * kGroups;  // the warp's first query
  const Bf16* const q = call.q + place.sequence * call.Tq * call.ldq + place.head * call.D;
  const Bf16* const k = call.k + place.sequence * call.Tkv * call.ldk + kv_head * call.D;
  const Bf16* const v = call.v + place.sequence * call.Tkv * call.ldv + kv_head * call.D;
  Bf16* const own_queries = queries + warp_of_block() * 16 * kGroups * kPitch<kWidth>;
  const int lane = lane_of_warp(), g = lane / 4, t = lane % 4;

  fetch_rows<kRows, kWidth>(queries, q, call.ldq, first, call.Tq, call.D);
  const auto fetch = [&](std::int64_t key, int stage) {
    const int at = stage * kKeys * kPitch<kWidth>;
    fetch_rows<kKeys, kWidth>(keys + at, k, call.ldk, key, call.Tkv, call.D);
    fetch_rows<kKeys, kWidth>(values + at, v, call.ldv, key, call.Tkv, call.D);
    copy_async_commit();
  };
  fetch(0, 0);

  float sums[kGroups][kWidth / 8][4] = {}, reference[kGroups][2], total[kGroups][2];
#pragma unroll
  for (int i = 0; i < kGroups; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) reference[i][half] = -INFINITY, total[i][half] = 0;

  int stage = 0;
  for (std::int64_t key = 0; key < all_keys; key += kKeys, stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();
    if (key + kKeys < all_keys) fetch(key + kKeys, stage ^ 1);
    // Positions of the warp's queries are past + own and following: keys behind the last are no concern.
    if (own >= call.Tq || key > past + own + 16 * kGroups - 1) continue;
    float s[kGroups][kN][4] = {};
    add_dots<kWidth>(s, own_queries, keys + stage * kKeys * kPitch<kWidth>);
    // A query that is there sees no key that is not, so the diagonal is all there is to mask.
    if (key + kKeys - 1 > past + own) hide_later<false>(s, key - past - own);
    bool moved = false;
    float factor[kGroups][2];
#pragma unroll
    for (int i = 0; i < kGroups; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < kN; ++n) most = fmaxf(most, fmaxf(s[i][n][2 * half], s[i][n][2 * half + 1]));
        most = most_of_row(most) * call.scale_log2;
        const bool moves = most > reference[i][half] + kSlack;
        factor[i][half] = moves ? fast_exp2(reference[i][half] - most) : 1.0f;
        reference[i][half] = moves ? most : reference[i][half];
        moved |= moves;
      }
    // Rows that keep their reference are multiplied by one: no row's bits depend on its neighbours.
    if (__ballot_sync(kAllLanes, moved) != 0) {
#pragma unroll
      for (int i = 0; i < kGroups; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          total[i][half] *= factor[i][half];
#pragma unroll
          for (int n = 0; n < kWidth / 8; ++n) {
            sums[i][n][2 * half] *= factor[i][half];
            sums[i][n][2 * half + 1] *= factor[i][half];
          }
        }
    }
#pragma unroll
    for (int i = 0; i < kGroups; ++i)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s[i][n][e] = fast_exp2(fmaf(s[i][n][e], call.scale_log2, -reference[i][e / 2]));
          total[i][e / 2] += s[i][n][e];
        }
    add_weighted<kWidth>(sums, s, values + stage * kKeys * kPitch<kWidth>);
  }

  float* const lse = call.lse + (std::int64_t{place.sequence} * call.H + place.head) * call.Tq;
  float inverse[kGroups][2];
#pragma unroll
  for (int i = 0; i < kGroups; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = sum_of_row(total[i][half]);
      inverse[i][half] = 1.0f / sum;
      const std::int64_t query = own + 16 * i + g + 8 * half;
      if (t == 0 && query < call.Tq) lse[query] = (reference[i][half] + log2f(sum)) * kLn2;
    }
  write_rows<kWidth>(call.out + place.sequence * call.Tq * call.ldout + place.head * call.D, call.ldout, own,
                     call.Tq, call.D, sums, inverse, own_queries);
}

template <int kWidth, int kGroups>
void run(Queue& queue, Call<Bf16> call) {
  constexpr int kRows = 16 * kGroups * kWarps;
  call.tiles = blocks_for(call.Tq, kRows);
  launch(queue, {"attention_forward", call.tiles * call.B * call.H, kThreads, tile_bytes<kWidth>(kRows)},
         forward_kernel<kWidth, kGroups>, call);
}

}  // namespace

void forward_bf16(Queue& queue, const Call<Bf16>& call) {
  by_width(call.D, [&](auto width) {
    // Two groups of rows a warp halve what it reads of shared memory for each product.
    if (call.Tq > 64)
      run<width(), 2>(queue, call);
    else
      run<width(), 1>(queue, call);
  });
}

}  // namespace compact::cuda::attention
