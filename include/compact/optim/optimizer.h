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

/// The settings that optimizers read; each takes what it knows.
struct OptimizerOptions {
  std::string name = "adamw";
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0.0;
  double block_scale = 1.0;  ///< adamw: lr factor of the matrices inside the blocks
  double alpha = 0.25,
         out_scale = 0.5;  ///< compact: scale of compressed weights; o_proj gets alpha · out_scale
  DType state_dtype = DType::F32;
};

/// The numbers of one update.
struct Update {
  std::int64_t index = 0;  ///< updates are counted from 0 and go on over skipped steps; names the window of P
  std::int64_t exponent = 1;  ///< updates really applied, this one included: Adam's t
  double lr = 0;              ///< of the schedule, before any factor of a weight
  float gradient_scale = 1;   ///< from clipping
};

/// Changes weights by their gradients. States lie in the arena, one entry per parameter, in the order of the
/// model's parameters. A new optimizer is one file that derives from this and one line in optimizer.cpp's
/// table.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Takes zeroed states for every parameter from the persistent part of the arena.
  virtual void allocate(Context& context, std::span<const Parameter> parameters) = 0;
  /// Updates parameter `i` of those given to allocate. May use its gradient as workspace.
  virtual void update(Context& context, const Parameter& parameter, std::size_t i, const Update& update) = 0;
  /// States under "<Hugging Face name>.<state>", for checkpoints; the views are written to on resume.
  virtual std::vector<NamedTensor> states() const = 0;
};

/// Throws InputError for an unknown name, listing those there are.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace compact
