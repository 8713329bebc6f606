#pragma once
#include <cstdint>

#include "compact/core/labels.h"
#include "compact/memory/context.h"

namespace compact {

/// loss [n] (F32) = log-sum-exp(logits) - logits[label] for each row of logits [n, V] (F32 or BF16); 0 where
/// the label is kIgnoreIndex. labels [n] (I32). Softmax and loss in fp32.
void cross_entropy_forward(Context& context, const Tensor& logits, const Tensor& labels, const Tensor& loss);

/// The same, and logits become their gradient in place: (softmax - onehot) · scale, 0 in ignored rows; in
/// BF16 rounded to nearest. What is under 2^-100 of the row's largest softmax counts as 0. `scale` is
/// 1 / (counted tokens of the whole step).
void cross_entropy_backward(Context& context, const Tensor& logits, const Tensor& labels, float scale,
                            const Tensor& loss);

}  // namespace compact
