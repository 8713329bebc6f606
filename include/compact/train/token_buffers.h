#pragma once
#include <cstdint>
#include <vector>

#include "compact/memory/arena.h"

namespace compact {

/// Sum of the losses and number of counted tokens of some sequences.
struct LossSum {
  double sum = 0;
  std::int64_t tokens = 0;
};

/// Where the tokens of one pass through a model lie, and the losses it gives, in the persistent part of an
/// arena.
class TokenBuffers {
 public:
  /// Room for `tokens` positions.
  TokenBuffers(Arena& arena, std::int64_t tokens);

  /// Copies `count` positions from `first` on. Every pass has the full shape, so that memory and kernels are
  /// those of the plan: the rest is filled with positions that have no target.
  void stage(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& labels,
             std::int64_t first, std::int64_t count);
  /// Of what was staged, after a pass; zero on the plan device.
  LossSum losses() const;

  Tensor ids, labels;  ///< [N] I32
  Tensor loss;         ///< [N] F32
};

}  // namespace compact
