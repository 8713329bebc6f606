#include "compact/kernels/adam.h"
#include "compact/optim/adam_states.h"
#include "compact/optim/table.h"

namespace compact {

namespace {

/// CompAct's optimizer (paper Algorithm 3): Adam on the compressed gradient, its result expanded by P with
/// step lr · alpha. o_proj, whose gradient is whole, moves by lr · alpha · out_scale; embedding, head and
/// norms by lr. Weights of the compressed kinds that a run leaves whole (`compact.layers`) move by lr ·
/// alpha, so that the list changes what is compressed and not how fast the block learns. Weight decay is
/// decoupled, full size and without alpha, and leaves norms alone.
class ProjectedAdam final : public Optimizer {
 public:
  explicit ProjectedAdam(const OptimizerOptions& options) : options_(options) {}

  void allocate(Context& context, std::span<const Parameter> parameters) override {
    states_.allocate(context, parameters, options_.state_dtype);
  }

  void update(Context& context, const Parameter& p, std::size_t i, const Update& u) override {
    AdamStep step = adam_step(options_.beta1, options_.beta2, options_.eps, u.exponent);
    step.lr = static_cast<float>(u.lr * scale(p.role()));
    step.decay = p.role() == Role::Norm ? 0.0f : static_cast<float>(u.lr * options_.weight_decay);
    step.gradient_scale = u.gradient_scale;
    if (p.compression)
      projected_adam(context, step, p.compression->at_update(u.index), p.weight, p.gradient, states_.m(i),
                     states_.v(i));
    else
      adamw(context, step, p.weight, p.gradient, states_.m(i), states_.v(i));
  }

  std::vector<NamedTensor> states() const override { return states_.named(); }

 private:
  double scale(Role role) const {
    if (!in_block(role)) return 1.0;
    return role == Role::O ? options_.alpha * options_.out_scale : options_.alpha;
  }

  OptimizerOptions options_;
  AdamStates states_;
};

}  // namespace

std::unique_ptr<Optimizer> make_projected_adam(const OptimizerOptions& options) {
  return std::make_unique<ProjectedAdam>(options);
}

}  // namespace compact
