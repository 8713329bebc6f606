#include "compact/kernels/adam.h"
#include "compact/kernels/elementwise.h"
#include "compact/optim/adam_states.h"
#include "compact/optim/table.h"

namespace compact {

namespace {

/// CompAct's optimizer (paper Algorithm 3): Adam on the compressed gradient, its result expanded by P with
/// step lr · alpha. o_proj, whose gradient is whole, moves by lr · alpha · out_scale; embedding, head and
/// norms by lr. Weights of the compressed kinds that a run leaves whole (`compact.layers`) move by lr ·
/// alpha, so that the list changes what is compressed and not how fast the block learns. Weight decay is
/// decoupled, full size and without alpha, and leaves norms alone.
///
/// With a new P the coordinates of the compressed moments mean other directions of the weight:
///   keep       m and v are read in the new basis as they are, as the published recipe does
///   reset      m = v = 0, and the bias corrections of compressed weights start anew with
///              `window_exponent`: with the old exponent the first steps would be far too small in m
///   transport  m is carried over by P_newᵀ P_old, so that it goes on pointing where it did
/// v stays in a transport. It holds sizes, no directions: no linear map carries it over (squares do not mix
/// as the coordinates do), and it needs none. Each coordinate of Ĝ = Pᵀ G has the mean square ‖G‖²/r of its
/// output channel under any P, so what v says about the scale of a channel goes on being true; one value a
/// channel does not even name a coordinate. What is lost are differences between the coordinates of a
/// channel, which were chance of the old P.
class ProjectedAdam final : public Optimizer {
 public:
  explicit ProjectedAdam(const OptimizerOptions& options) : options_(options) {}

  void allocate(Context& context, std::span<const Parameter> parameters) override {
    states_.allocate(context, parameters, options_);
  }

  void adopt_weights(Context& context, std::span<const Parameter> parameters) override {
    states_.adopt(context, parameters);
  }

  void reseed(Context& context, const Parameter& p, std::size_t i, const Projection& last,
              const Projection& next) override {
    if (p.weight.elements() == 0) return;
    switch (options_.at_reseed) {
      case AtReseed::Keep:
        return;
      case AtReseed::Reset:
        zero(context, states_.m(i));
        zero(context, states_.v(i));
        return;
      case AtReseed::Transport:
        transport_moment(context, last, next, static_cast<float>(options_.transport_scale), states_.m(i));
        return;
    }
  }

  void update(Context& context, const Parameter& p, std::size_t i, const Update& u) override {
    if (p.weight.elements() == 0) return;
    const bool anew = p.compression && options_.at_reseed == AtReseed::Reset;
    const AdamStep step =
        adam_step_of(options_, p, u, u.lr * scale(p.role()), u.lr, anew ? u.window_exponent : u.exponent);
    const Rounding rounding = rounding_of(options_, p, u);
    if (p.compression)
      projected_adam(context, step, rounding, p.compression->at_update(u.index), p.weight, p.gradient,
                     states_.m(i), states_.v(i), states_.master(i));
    else
      adamw(context, step, rounding, p.weight, p.gradient, states_.m(i), states_.v(i), states_.master(i));
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
