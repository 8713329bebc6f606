#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compact/io/safetensors.h"
#include "compact/memory/context.h"
#include "compact/nn/parameter.h"

namespace compact {

/// What happens to the moments of compressed weights when a new P is drawn (design, section 2).
enum class AtReseed {
  Keep,       ///< nothing: they are read in the new basis
  Reset,      ///< both become zero and Adam's exponent of these weights starts anew
  Transport,  ///< m is carried over by P_newᵀ P_old; v, which holds sizes and no directions, stays
};

/// The settings that optimizers read; each takes what it knows.
struct OptimizerOptions {
  std::string name = "adamw";
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0.0;
  double block_scale = 1.0;  ///< adamw: lr factor of the matrices inside the blocks
  double alpha = 0.25,
         out_scale = 0.5;  ///< compact: scale of compressed weights; o_proj gets alpha · out_scale
  DType state_dtype = DType::F32;
  bool master_weights = false;      ///< fp32 copies of all weights are what is updated; weights are bf16
  bool stochastic_rounding = true;  ///< of bf16 weights without master; else to nearest
  std::uint64_t seed = 0;           ///< of the rounding
  bool per_channel = false;  ///< compact: one second moment for each output channel of a compressed weight
  AtReseed at_reseed = AtReseed::Keep;  ///< compact: what becomes of the moments of compressed weights
  double transport_scale = 1.0;         ///< compact, AtReseed::Transport
};

/// The numbers of one update.
struct Update {
  std::int64_t index = 0;  ///< updates are counted from 0 and go on over skipped steps; names the window of P
  std::int64_t exponent = 1;         ///< updates really applied, this one included: Adam's t
  std::int64_t window_exponent = 1;  ///< the same, counted from the last new P
  double lr = 0;                     ///< of the schedule, before any factor of a weight
  const float* gate = nullptr;  ///< on the device: clipping, and whether to update (kernels/update_gate.h)
};

/// Changes weights by their gradients. States lie in the arena, one entry per parameter, in the order of the
/// model's parameters. Parameters may be some rows of those of the model (compact/optim/own_rows.h), or none:
/// rows that are updated apart get the values that an update of the whole gives them, to the bit where no
/// library's product (gaussian, orthonormal, transport) depends on the number of rows. A new optimizer is one
/// file that derives from this and one line in optimizer.cpp's table.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Takes zeroed states for every parameter from the persistent part of the arena.
  virtual void allocate(Context& context, std::span<const Parameter> parameters) = 0;
  /// Makes the master weights, where there are any, from the weights. Called once the weights are there.
  virtual void adopt_weights(Context& context, std::span<const Parameter> parameters) = 0;
  /// Tells that `next` is the projection of compressed parameter `i` from now on, `last` was it before.
  virtual void reseed(Context& context, const Parameter& parameter, std::size_t i, const Projection& last,
                      const Projection& next) = 0;
  /// Updates parameter `i` of those given to allocate. May use its gradient as workspace.
  virtual void update(Context& context, const Parameter& parameter, std::size_t i, const Update& update) = 0;
  /// States under "<Hugging Face name>.<state>", for checkpoints; the views are written to on resume. Each
  /// names the shape of the whole model's state, also where it is all here or nothing of it: so the list is
  /// the same on all ranks but for `data` and `first`, whose runs of elements follow each other in rank
  /// order.
  virtual std::vector<NamedTensor> states() const = 0;
};

/// Throws InputError for an unknown name, listing those there are.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace compact
