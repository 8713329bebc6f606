#pragma once
#include <cstdint>

#include "kernels/cpu_isa.h"

namespace compact::cpu {

/// Rows of queries or keys in a tile. A tile of scores is [kTile, kTile].
inline constexpr std::int64_t kTile = 64;
/// Queries that share the packing of a tile of keys in forward.
inline constexpr std::int64_t kQueryBlock = 2 * kTile;

/// Sizes and memory of one call. All matrices are fp32; `ld*` are elements from row to row.
struct AttentionCall {
  std::int64_t B, T, Tkv, H, Hkv, D;
  const float *q, *k, *v;  // [B·T, H·D], [B·Tkv, Hkv·D] twice
  std::int64_t ldq, ldk, ldv;
  float* out;  // [B·T, H·D]; read in backward
  std::int64_t ldo;
  float* lse;         // [B, H, T]; read in backward
  const float* dout;  // [B·T, H·D]
  std::int64_t lddout;
  float *dq, *dk, *dv;  // [B·T, H·D], [B·Tkv, Hkv·D] twice
  std::int64_t lddq, lddk, lddv;
  float* delta;  // [B, H, T], workspace of backward
  float* tiles;  // [threads, floats of one thread]
};

/// A head width as it is packed: whole vectors of either instruction set. (Internal linkage, as cpu_isa.h
/// asks.)
static constexpr std::int64_t padded_width(std::int64_t D) { return (D + 15) / 16 * 16; }

/// Floats of workspace a thread takes.
static constexpr std::int64_t attention_forward_floats(std::int64_t D) {
  return kTile * (D + padded_width(D) + kTile) + kQueryBlock * (padded_width(D) + 2);
}
static constexpr std::int64_t attention_backward_floats(std::int64_t D) {
  return kTile * (2 * D + 6 * padded_width(D) + 2 * kTile);
}

}  // namespace compact::cpu

COMPACT_PER_ISA(void attention_forward(const AttentionCall& call);
                void attention_backward(const AttentionCall& call);)
