#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "compact/io/safetensors.h"
#include "compact/kernels/adam_step.h"
#include "compact/kernels/rounding.h"
#include "compact/memory/context.h"
#include "compact/nn/parameter.h"
#include "compact/optim/optimizer.h"

namespace compact {

/// What the Adam family keeps for every parameter, in the arena (nothing for one without rows):
///   m       like the gradient, of `state_dtype`
///   v       the same; with `per_channel`, [rows] for a compressed parameter: one for each output channel
///   master  like the weight, F32, where there are `master_weights`; else empty
class AdamStates {
 public:
  /// m and v zero, master not yet filled: see adopt.
  void allocate(Context& context, std::span<const Parameter> parameters, const OptimizerOptions& options);
  /// master = weight, for all that have one.
  void adopt(Context& context, std::span<const Parameter> parameters) const;

  const Tensor& m(std::size_t i) const { return states_[i].m; }
  const Tensor& v(std::size_t i) const { return states_[i].v; }
  const Tensor& master(std::size_t i) const { return states_[i].master; }

  /// Every member's rows as "<name>.m", "<name>.v" and, where there are any, "<name>.master", as parts of
  /// those of the whole member.
  std::vector<NamedTensor> named() const;

 private:
  struct States {
    std::vector<Member> members;
    Tensor m, v, master;
  };
  std::vector<States> states_;
};

/// The numbers of one update of `p`: step size lr, decoupled decay of all but norms by decay_lr ·
/// weight_decay, corrections for Adam's exponent t.
AdamStep adam_step_of(const OptimizerOptions& options, const Parameter& p, const Update& update, double lr,
                      double decay_lr, std::int64_t t);

/// How new values of `p` are rounded: by random numbers of the run's seed, the parameter and the update, so
/// that an update which is done again after a resume gives the same bits.
Rounding rounding_of(const OptimizerOptions& options, const Parameter& p, const Update& update);

}  // namespace compact
