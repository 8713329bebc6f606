#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "compact/memory/context.h"

namespace compact {

namespace cuda {
class PinnedMemory;
}

/// Sum of the losses and number of counted tokens of some sequences.
struct LossSum {
  double sum = 0;
  std::int64_t tokens = 0;
};

/// The tokens of one pass through a model.
struct Tokens {
  Tensor ids, labels;  ///< [N] I32
};

/// Where the tokens of the passes of a step lie, and the losses of a pass, in the persistent part of an
/// arena. On the CPU there is room for one pass, filled when its turn comes. On a CUDA device all passes lie
/// side by side and come in one copy, so that the step itself needs nothing from the host.
class TokenBuffers {
 public:
  /// For up to `passes` passes of `tokens` positions each.
  TokenBuffers(Context& context, std::int64_t tokens, std::int64_t passes);
  ~TokenBuffers();

  /// Takes `count` positions for the passes to come. Every pass has the full shape, so that memory and
  /// kernels are those of the plan: the rest is filled with positions that have no target. Where `labels` is
  /// empty none has one. The vectors stay as they are until the last pass.
  void stage(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& labels,
             std::int64_t count);
  Tokens pass(std::int64_t i);
  /// Sum of `loss` and number of targets, after a single pass; zero on the plan device.
  LossSum losses();

  Tensor loss;  ///< [N] F32, of the latest pass

 private:
  /// Positions [first, first + N) of what was staged, in host memory.
  void fill(std::int64_t first, std::int32_t* ids, std::int32_t* labels) const;

  Context& context_;
  std::int64_t tokens_;                         // N
  Tensor ids_, labels_;                         // [N], on a CUDA device [passes · N]
  Tensor total_;                                // [1] F64
  std::unique_ptr<cuda::PinnedMemory> pinned_;  // ids, then labels
  const std::vector<std::int32_t>*inputs_from_ = nullptr, *labels_from_ = nullptr;
  std::int64_t count_ = 0;
};

}  // namespace compact
