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
    states_.allocate(context, parameters, options_);
  }

  void adopt_weights(Context& context, std::span<const Parameter> parameters) override {
    states_.adopt(context, parameters);
  }

  // Its weights are whole: no moment depends on a projection.
  void reseed(Context&, const Parameter&, std::size_t, const Projection&, const Projection&) override {}

  void update(Context& context, const Parameter& p, std::size_t i, const Update& u) override {
    if (p.weight.elements() == 0) return;
    const double lr = u.lr * (in_block(p.role()) ? options_.block_scale : 1.0);
    adamw(context, adam_step_of(options_, p, u, lr, lr, u.exponent), rounding_of(options_, p, u), p.weight,
          p.gradient, states_.m(i), states_.v(i), states_.master(i));
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
