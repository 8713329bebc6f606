#pragma once
#include <cstdint>

#include "compact/memory/context.h"

namespace compact {

/// Sizes of causal grouped-query attention. Query head h reads key/value head h / (H / Hkv).
struct AttentionShape {
  std::int64_t B = 0;    ///< sequences
  std::int64_t T = 0;    ///< queries a sequence
  std::int64_t H = 0;    ///< query heads
  std::int64_t Hkv = 0;  ///< key/value heads
  std::int64_t D = 0;    ///< head width
  std::int64_t Tkv =
      0;  ///< keys a sequence, >= T; query t stands at position Tkv - T + t and sees keys 0..that
};

/// out [B·T, H·D] = softmax(q kᵀ / sqrt(D)) v over visible positions; lse [B, H, T] (F32) = natural
/// log-sum-exp of the scaled scores. q [B·T, H·D], k and v [B·Tkv, Hkv·D] are views with any row stride.
/// Works in tiles with a running maximum: nothing of size T × T is made. q, k, v and out are of one type, F32
/// or BF16. In BF16 scores, softmax and all sums are fp32, and softmax weights enter their product rounded to
/// BF16 on CPUs that multiply BF16 (has_bf16_products) and by tensor cores, unrounded elsewhere.
void attention_forward(Context& context, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& out, const Tensor& lse);

/// Gradients dq [B·T, H·D], dk and dv [B·T, Hkv·D] (written, not added; views with any row stride) from
/// dout [B·T, H·D] and what forward made. Tkv = T here; all of one type but lse. Scores are made again from
/// lse. Each gradient is summed in fp32 and rounded once. Deterministic.
void attention_backward(Context& context, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv);

}  // namespace compact
