#include <type_traits>

#include "kernels/attention_mma_cuda.h"

/// dq by blocks that own queries, then dk and dv by blocks that own keys. Both make scores and slopes again:
/// seven products where one kernel for all would need five, but that one would add to dq from many blocks, in
/// an order that changes, or keep a part of dq for every key tile.
namespace compact::cuda::attention {

namespace {

/// Streamed rows whose scores are in registers at once.
constexpr int kStep = 32, kN = kStep / 8;
/// Groups of 16 rows a warp owns: with two, what is read of shared memory serves twice as many products; wide
/// heads have no registers for that.
template <int kWidth>
constexpr int kGroupsOf = kWidth <= 64 ? 2 : 1;
template <int kWidth>
constexpr int kOwn = 16 * kWarps* kGroupsOf<kWidth>;

/// A block makes kOwn rows of dq and of delta.
/// FLOPs: 6 · D for each visible pair (three products). Least traffic: q, out, dout, k, v and dq once.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2) dq_kernel(Call<Bf16> call) {
  constexpr int kGroups = kGroupsOf<kWidth>, kRows = kOwn<kWidth>, kKeys = kStreamed<kWidth>;
  COMPACT_DYNAMIC_SHARED(memory);
  Bf16* const queries = reinterpret_cast<Bf16*>(memory);   // [kRows]
  Bf16* const douts = queries + kRows * kPitch<kWidth>;    // [kRows]
  Bf16* const keys = douts + kRows * kPitch<kWidth>;       // [2][kKeys]
  Bf16* const values = keys + 2 * kKeys * kPitch<kWidth>;  // [2][kKeys]
  const Place place = place_of(call.H, call.B, call.tiles, call.at_once);
  const std::int64_t T = call.Tq, first = std::int64_t{call.tiles - 1 - place.tile} * kRows,
                     all_keys = lesser(T, first + kRows), row0 = place.sequence * T;
  const std::uint32_t column = place.head * call.D, kv_column = place.head / (call.H / call.Hkv) * call.D;
  const int own_row = warp_of_block() * 16 * kGroups;
  const std::int64_t own = first + own_row;
  const Bf16* const k = call.k + row0 * call.ldk + kv_column;
  const Bf16* const v = call.v + row0 * call.ldv + kv_column;
  const Bf16* const dout = call.dout + row0 * call.lddout + column;
  const Bf16* const out = call.out + row0 * call.ldout + column;
  Bf16* const own_queries = queries + own_row * kPitch<kWidth>;
  Bf16* const own_douts = douts + own_row * kPitch<kWidth>;
  const int lane = lane_of_warp(), g = lane / 4, t = lane % 4;

  fetch_rows<kRows, kWidth>(queries, call.q + row0 * call.ldq + column, call.ldq, first, T, call.D);
  fetch_rows<kRows, kWidth>(douts, dout, call.lddout, first, T, call.D);
  const auto fetch = [&](std::int64_t key, int stage) {
    const int at = stage * kKeys * kPitch<kWidth>;
    fetch_rows<kKeys, kWidth>(keys + at, k, call.ldk, key, T, call.D);
    fetch_rows<kKeys, kWidth>(values + at, v, call.ldv, key, T, call.D);
    copy_async_commit();
  };
  fetch(0, 0);

  // The four lanes of a row share its columns; each row's numbers end in the lanes that need them.
  float log_sum[kGroups][2], delta[kGroups][2];  // log_sum in units of log2
#pragma unroll
  for (int i = 0; i < kGroups; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t query = own + 16 * i + g + 8 * half,
                         at = (std::int64_t{place.sequence} * call.H + place.head) * T + query;
      float sum = 0;
      if (query < T)
        for (std::uint32_t d = 8 * static_cast<std::uint32_t>(t); d < call.D; d += 32) {
          const uint4 a = load_vector<uint4>(dout + query * call.lddout + d),
                      b = load_vector<uint4>(out + query * call.ldout + d);
          const std::uint32_t as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            sum = fmaf(low_bf16(as[j]), low_bf16(bs[j]), sum);
            sum = fmaf(high_bf16(as[j]), high_bf16(bs[j]), sum);
          }
        }
      sum = sum_of_row(sum);
      delta[i][half] = sum;
      if (t == 0 && query < T) call.delta[at] = sum;
      log_sum[i][half] = query < T ? call.lse[at] * kLog2E : INFINITY;  // weights of 0
    }

  float sums[kGroups][kWidth / 8][4] = {};
  int stage = 0;
  for (std::int64_t tile = 0; tile < all_keys; tile += kKeys, stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();
    if (tile + kKeys < all_keys) fetch(tile + kKeys, stage ^ 1);
#pragma unroll 1
    for (int part = 0; part < kKeys; part += kStep) {
      const std::int64_t key = tile + part;
      if (own >= T || key > own + 16 * kGroups - 1) break;
      const Bf16* const here = keys + (stage * kKeys + part) * kPitch<kWidth>;
      float p[kGroups][kN][4] = {}, ds[kGroups][kN][4] = {};
      add_dots<kWidth>(p, own_queries, here);
      add_dots<kWidth>(ds, own_douts, here + 2 * kKeys * kPitch<kWidth>);
      if (key + kStep - 1 > own) hide_later<false>(p, key - own);
#pragma unroll
      for (int i = 0; i < kGroups; ++i)
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float weight = fast_exp2(fmaf(p[i][n][e], call.scale_log2, -log_sum[i][e / 2]));
            ds[i][n][e] = weight * (ds[i][n][e] - delta[i][e / 2]);
          }
      add_weighted<kWidth>(sums, ds, here);
    }
  }
  float factor[kGroups][2];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) factor[i][0] = factor[i][1] = call.scale;
  write_rows<kWidth>(call.dq + row0 * call.lddq + column, call.lddq, own, T, call.D, sums, factor,
                     own_queries);
}

/// A block makes kOwn rows of dk and dv of one key/value head: for each query head of its group the query
/// tiles from the diagonal on. Scores stand transposed in registers, keys down and queries across, so that
/// weights and slopes are left operands as they are.
/// FLOPs: 8 · D for each visible pair (four products). Least traffic: q, dout, k, v, dk and dv once.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2) dkv_kernel(Call<Bf16> call) {
  constexpr int kGroups = kGroupsOf<kWidth>, kRows = kOwn<kWidth>, kQueries = kStreamed<kWidth>;
  static_assert(kQueries <= kThreads);
  COMPACT_SHARED(float, log_sums, [2][kQueries]);  // in units of log2
  COMPACT_SHARED(float, deltas, [2][kQueries]);
  COMPACT_DYNAMIC_SHARED(memory);
  Bf16* const keys = reinterpret_cast<Bf16*>(memory);           // [kRows]
  Bf16* const values = keys + kRows * kPitch<kWidth>;           // [kRows]
  Bf16* const queries = values + kRows * kPitch<kWidth>;        // [2][kQueries]
  Bf16* const douts = queries + 2 * kQueries * kPitch<kWidth>;  // [2][kQueries]
  // The first tile is seen by the most queries and comes first.
  const std::uint32_t group = call.H / call.Hkv;
  const Place place = place_of(call.Hkv, call.B, call.tiles, (call.at_once + group - 1) / group);
  const std::int64_t T = call.Tq, first = std::int64_t{place.tile} * kRows, row0 = place.sequence * T,
                     first_query = first / kQueries * kQueries;
  const std::uint32_t column = place.head * call.D;
  const int own_row = warp_of_block() * 16 * kGroups, thread = static_cast<int>(threadIdx.x);
  const std::int64_t own = first + own_row;
  Bf16* const own_keys = keys + own_row * kPitch<kWidth>;
  Bf16* const own_values = values + own_row * kPitch<kWidth>;
  const int t = lane_of_warp() % 4;

  fetch_rows<kRows, kWidth>(keys, call.k + row0 * call.ldk + column, call.ldk, first, T, call.D);
  fetch_rows<kRows, kWidth>(values, call.v + row0 * call.ldv + column, call.ldv, first, T, call.D);

  // What is asked for next; numbers of queries come by way of registers, while the stage before is in work.
  std::uint32_t next_head = place.head * group;
  std::int64_t next_query = first_query;
  float next_log_sum = 0, next_delta = 0;
  const auto fetch = [&](int stage) {
    const int at = stage * kQueries * kPitch<kWidth>;
    fetch_rows<kQueries, kWidth>(queries + at, call.q + row0 * call.ldq + next_head * call.D, call.ldq,
                                 next_query, T, call.D);
    fetch_rows<kQueries, kWidth>(douts + at, call.dout + row0 * call.lddout + next_head * call.D, call.lddout,
                                 next_query, T, call.D);
    copy_async_commit();
    const std::int64_t query = next_query + thread,
                       of = (std::int64_t{place.sequence} * call.H + next_head) * T + query;
    const bool valid = thread < kQueries && query < T;
    next_log_sum = valid ? call.lse[of] * kLog2E : INFINITY;  // weights of 0
    next_delta = valid ? call.delta[of] : 0;
  };
  const auto keep_numbers = [&](int stage) {
    if (thread < kQueries) log_sums[stage][thread] = next_log_sum, deltas[stage][thread] = next_delta;
  };
  fetch(0);
  keep_numbers(0);

  float dk[kGroups][kWidth / 8][4] = {}, dv[kGroups][kWidth / 8][4] = {};
  int stage = 0;
  for (bool more = true; more; stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();
    const std::int64_t tile = next_query;
    next_query += kQueries;
    if (next_query >= T) next_query = first_query, ++next_head;
    more = next_head < (place.head + 1) * group;
    if (more) fetch(stage ^ 1);
#pragma unroll 1
    for (int part = 0; part < kQueries; part += kStep) {
      const std::int64_t query = tile + part;
      if (own >= T || query >= T) break;
      if (query + kStep - 1 < own) continue;
      const Bf16* const here = queries + (stage * kQueries + part) * kPitch<kWidth>;
      const Bf16* const slopes = here + 2 * kQueries * kPitch<kWidth>;
      float p[kGroups][kN][4] = {}, ds[kGroups][kN][4] = {};
      add_dots<kWidth>(p, own_keys, here);
      if (query < own + 16 * kGroups - 1) hide_later<true>(p, query - own);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float2 log_sum = load_vector<float2>(&log_sums[stage][part + 8 * n + 2 * t]);
#pragma unroll
        for (int i = 0; i < kGroups; ++i)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            p[i][n][e] = fast_exp2(fmaf(p[i][n][e], call.scale_log2, e % 2 == 0 ? -log_sum.x : -log_sum.y));
          }
      }
      add_weighted<kWidth>(dv, p, slopes);
      add_dots<kWidth>(ds, own_values, slopes);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float2 delta = load_vector<float2>(&deltas[stage][part + 8 * n + 2 * t]);
#pragma unroll
        for (int i = 0; i < kGroups; ++i)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            ds[i][n][e] = p[i][n][e] * (ds[i][n][e] - (e % 2 == 0 ? delta.x : delta.y));
      }
      add_weighted<kWidth>(dk, ds, here);
    }
    if (more) keep_numbers(stage ^ 1);
  }
  float one[kGroups][2], factor[kGroups][2];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    one[i][0] = one[i][1] = 1;
    factor[i][0] = factor[i][1] = call.scale;
  }
  write_rows<kWidth>(call.dk + row0 * call.lddk + column, call.lddk, own, T, call.D, dk, factor, own_keys);
  write_rows<kWidth>(call.dv + row0 * call.lddv + column, call.lddv, own, T, call.D, dv, one, own_values);
}

}  // namespace

void backward_bf16(Queue& queue, Call<Bf16> call) {
  by_width(call.D, [&](auto width) {
    constexpr int kRows = kOwn<width()>;
    call.tiles = blocks_for(call.Tq, kRows);
    const std::int64_t bytes = tile_bytes<width()>(2 * kRows);
    launch(queue, {"attention_backward dq", call.tiles * call.B * call.H, kThreads, bytes},
           dq_kernel<width()>, call);
    launch(queue, {"attention_backward dk dv", call.tiles * call.B * call.Hkv, kThreads, bytes},
           dkv_kernel<width()>, call);
  });
}

}  // namespace compact::cuda::attention
