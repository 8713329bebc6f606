#include "compact/optim/adam_states.h"

#include "compact/kernels/adam.h"
#include "compact/kernels/elementwise.h"

namespace compact {

void AdamStates::allocate(Context& context, std::span<const Parameter> parameters,
                          const OptimizerOptions& options) {
  for (const Parameter& p : parameters) {
    const std::string& name = p.members.front().name;
    const auto moment = [&](const char* suffix, const Shape& shape) {
      const Tensor t =
          context.arena.persistent(name + suffix, shape, options.state_dtype, Category::Optimizer);
      if (t.elements() > 0) zero(context, t);
      return t;
    };
    States s{p.members, moment(".m", p.gradient.shape), {}, {}};
    s.v = moment(".v", options.per_channel && p.compression ? Shape{p.gradient.rows()} : p.gradient.shape);
    if (options.master_weights)
      s.master = context.arena.persistent(name + ".master", p.weight.shape, DType::F32, Category::Master);
    states_.push_back(std::move(s));
  }
}

void AdamStates::adopt(Context& context, std::span<const Parameter> parameters) const {
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (states_[i].master.elements() > 0) copy(context, parameters[i].weight, states_[i].master);
}

std::vector<NamedTensor> AdamStates::named() const {
  std::vector<NamedTensor> all;
  for (const States& s : states_)
    for (const Member& member : s.members) {
      const auto add = [&](const char* suffix, const Tensor& t) {
        NamedTensor state{member.name + suffix, t, t.shape, 0};
        if (member.role == Role::Norm) {  // one row, and as a share that or nothing
          state.file_shape = {t.cols()};
        } else {
          const bool per_channel = t.shape.rank() == 1;
          state.data = per_channel ? t.slice(member.first_row, member.rows)
                                   : t.row_range(member.first_row, member.rows);
          state.file_shape = per_channel ? Shape{member.file_rows()} : Shape{member.file_rows(), t.cols()};
          state.first = member.rows_before * (per_channel ? 1 : t.cols());
        }
        all.push_back(std::move(state));
      };
      add(".m", s.m);
      add(".v", s.v);
      if (!s.master.empty()) add(".master", s.master);
    }
  return all;
}

AdamStep adam_step_of(const OptimizerOptions& options, const Parameter& p, const Update& update, double lr,
                      double decay_lr, std::int64_t t) {
  AdamStep step = adam_step(options.beta1, options.beta2, options.eps, t);
  step.lr = static_cast<float>(lr);
  step.decay = p.role() == Role::Norm ? 0.0f : static_cast<float>(decay_lr * options.weight_decay);
  step.gate = update.gate;
  return step;
}

Rounding rounding_of(const OptimizerOptions& options, const Parameter& p, const Update& update) {
  return {options.stochastic_rounding, options.seed, p.id, static_cast<std::uint32_t>(update.index),
          p.first_row};
}

}  // namespace compact
