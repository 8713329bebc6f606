#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compact/memory/context.h"
#include "compact/nn/gradient_memory.h"
#include "compact/nn/parameter.h"

namespace compact {

/// Numbers of one micro-batch's pass through the model.
struct Pass {
  std::int64_t B = 0, T = 0;  ///< sequences and their length; N = B·T tokens
  std::int64_t update = 0;    ///< index of the optimizer update this pass belongs to; names the window of P
  bool first = true;     ///< first micro-batch of the update: weight gradients are written, later ones added
  float loss_scale = 1;  ///< 1 / counted tokens of the whole step
  std::int64_t tokens() const { return B * T; }
};

enum class Sharing { PerInput, PerWeight };

/// CompAct's choices for a model (design, section 2).
struct CompactOptions {
  double rank = 0.25;  ///< <= 1: fraction of the input width; above 1: absolute
  ProjectionKind projection = ProjectionKind::Gaussian;
  Sharing sharing = Sharing::PerInput;
  std::int64_t update_gap = 50;
  std::uint64_t seed = 0;
  std::vector<Role> layers;
  bool compresses(Role role) const;
};

/// r for an input width of n: rank · n rounded half to even (at least 1), or rank itself above 1.
std::int64_t projected_width(double rank, std::int64_t n);

/// The types of a model's tensors, and whether it is trained.
struct ModelTypes {
  DType activation = DType::F32;  ///< weights, activations, activation gradients
  DType gradient = DType::F32;    ///< weight gradients
  bool trained = true;            ///< has gradients
};

/// One tensor of the model file inside a linear.
struct LinearPart {
  std::string name;
  Role role = Role::Q;
  std::int64_t rows = 0;            ///< output width m of this part
  std::uint32_t projection_id = 0;  ///< unique in the model
};

/// o [N, m] = x [N, n] · Wᵀ for one or several weights with a common input (q/k/v, gate/up), stored one after
/// another as one matrix W [m, n], so that each product is one GEMM.
///
/// CompAct lives here. A compressed weight's gradient is not dOᵀx [m, n] but Ĝ = dOᵀz [m, r] with z = xP [N,
/// r] (the transpose of the paper's zᵀdO, so that it lies like W). The gradient of x stays exact (paper
/// Algorithms 1, 2). With per-input sharing all compressed parts use one P and one z; otherwise each has its
/// own.
class Linear {
 public:
  /// Takes weight and gradient from the arena's persistent part. `compact` may be null: full rank.
  Linear(Context& context, std::string name, std::int64_t n, std::vector<LinearPart> parts, DType activation,
         const CompactOptions* compact, GradientMemory& gradients);

  std::int64_t inputs() const { return n_; }
  std::int64_t outputs() const { return weight_.rows(); }
  /// True if no part needs x itself in backward.
  bool fully_compressed() const;
  /// Projected widths, one for each z that backward needs (none: full rank).
  const std::vector<std::int64_t>& projected_widths() const { return widths_; }

  /// out [N, m] = x [N, n] · Wᵀ.
  void forward(Context& context, const Tensor& x, const Tensor& out) const;
  /// Each z [N, r] = x [N, n] · P of this update's window.
  void project(Context& context, const Pass& pass, const Tensor& x, const std::vector<Tensor>& z) const;
  /// dx [N, n] = dout [N, m] · W.
  void input_gradient(Context& context, const Tensor& dout, const Tensor& dx) const;
  /// Writes or adds the gradients of all parts. x [N, n] may be empty if fully_compressed(); z as made by
  /// project.
  void weight_gradient(Context& context, const Pass& pass, const Tensor& dout, const Tensor& x,
                       const std::vector<Tensor>& z) const;

  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  std::int64_t n_ = 0;
  Tensor weight_;                         // [m, n]
  std::vector<Parameter> parameters_;     // runs of rows that are treated alike
  std::vector<std::int64_t> first_row_;   // of each parameter in weight_
  std::vector<int> z_of_;                 // which z a parameter uses; -1: x itself
  std::vector<std::int64_t> widths_;      // r of each z
  std::vector<Compression> projections_;  // P of each z
};

}  // namespace compact
