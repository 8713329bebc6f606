#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/cpu_isa.h"

namespace compact::cpu {

/// Rows of queries or keys in a tile. A tile of scores is [kTile, kTile].
inline constexpr std::int64_t kTile = 64;
/// Queries that share the packing of a tile of keys in forward.
inline constexpr std::int64_t kQueryBlock = 4 * kTile;
/// Keys that share the packing of a tile of queries in backward.
inline constexpr std::int64_t kKeyBlock = 4 * kTile;

/// Sizes and memory of one call. Elements are float or Bf16; `ld*` are elements from row to row.
template <typename Element>
struct AttentionCall {
  std::int64_t B, T, Tkv, H, Hkv, D;
  const Element *q, *k, *v;  // [B·T, H·D], [B·Tkv, Hkv·D] twice
  std::int64_t ldq, ldk, ldv;
  Element* out;  // [B·T, H·D]; read in backward
  std::int64_t ldo;
  float* lse;           // [B, H, T]; read in backward
  const Element* dout;  // [B·T, H·D]
  std::int64_t lddout;
  Element *dq, *dk, *dv;  // [B·T, H·D], [B·Tkv, Hkv·D] twice
  std::int64_t lddq, lddk, lddv;
  float* tiles;  // [threads, thread_floats]
  std::int64_t thread_floats;
};

/// A head width as it is packed: whole vectors of either instruction set. (Internal linkage, as cpu_isa.h
/// asks.)
static constexpr std::int64_t padded_width(std::int64_t D) { return (D + 15) / 16 * 16; }

/// Floats of workspace a thread takes. Enough for tiles of bf16 pairs too, which take half of what tiles of
/// floats do but are there in up to two layouts: a plan is the same for every CPU.
static constexpr std::int64_t attention_forward_floats(std::int64_t D) {
  return 3 * kTile * padded_width(D) + kTile * kTile + kQueryBlock * (2 * padded_width(D) + 17);
}
/// `sums`: whether dq must be summed outside of its own memory (bf16, and more than one block of keys).
static constexpr std::int64_t attention_backward_floats(std::int64_t T, std::int64_t D, std::int64_t group,
                                                        bool sums) {
  return (5 * kKeyBlock + 4 * kTile) * padded_width(D) + 2 * kTile * kTile + 2 * kTile +
         (sums ? group * T * padded_width(D) : 0);
}

}  // namespace compact::cpu

/// In fp32, whatever the elements are.
COMPACT_PER_ISA(void attention_forward(const AttentionCall<float>& call);
                void attention_forward(const AttentionCall<Bf16>& call);
                void attention_backward(const AttentionCall<float>& call);
                void attention_backward(const AttentionCall<Bf16>& call);)

/// With products of bf16 pairs summed in fp32, on CPUs that have them (has_bf16_products).
namespace compact::cpu::avx512 {
void attention_forward_bf16(const AttentionCall<Bf16>& call);
void attention_backward_bf16(const AttentionCall<Bf16>& call);
}  // namespace compact::cpu::avx512
