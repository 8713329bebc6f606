#include "compact/kernels/adam.h"
#include "compact/optim/adam_states.h"
#include "compact/optim/table.h"

namespace compact {

namespace {

/// AdamW with decoupled decay on every matrix. The matrices inside the blocks may have their own lr factor
/// (`block_scale`): CompAct's recipe has that freedom, so an honest baseline has it too.
class AdamW final : public Optimizer {
 public:
  explicit AdamW(const OptimizerOptions& options) : options_(options) {}

  void allocate(Context& context, std::span<const Parameter> parameters) override {
    states_.allocate(context, parameters, options_.state_dtype);
  }

  void update(Context& context, const Parameter& p, std::size_t i, const Update& u) override {
    const double lr = u.lr * (in_block(p.role()) ? options_.block_scale : 1.0);
    AdamStep step = adam_step(options_.beta1, options_.beta2, options_.eps, u.exponent);
    step.lr = static_cast<float>(lr);
    step.decay = p.role() == Role::Norm ? 0.0f : static_cast<float>(lr * options_.weight_decay);
    step.gradient_scale = u.gradient_scale;
    adamw(context, step, p.weight, p.gradient, states_.m(i), states_.v(i));
  }

  std::vector<NamedTensor> states() const override { return states_.named(); }

 private:
  OptimizerOptions options_;
  AdamStates states_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options) {
  return std::make_unique<AdamW>(options);
}

}  // namespace compact
