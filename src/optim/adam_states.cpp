#include "compact/optim/adam_states.h"

#include "compact/kernels/elementwise.h"

namespace compact {

void AdamStates::allocate(Context& context, std::span<const Parameter> parameters, DType dtype) {
  for (const Parameter& p : parameters) {
    const std::string& name = p.members.front().name;
    const auto state = [&](const char* suffix) {
      const Tensor t = context.arena.persistent(name + suffix, p.gradient.shape, dtype, Category::Optimizer);
      zero(context, t);
      return t;
    };
    moments_.push_back({p.members, state(".m"), state(".v")});
  }
}

std::vector<NamedTensor> AdamStates::named() const {
  std::vector<NamedTensor> all;
  for (const Moments& x : moments_)
    for (const Member& member : x.members) {
      const bool whole = x.members.size() == 1;
      const auto rows = [&](const Tensor& t) {
        return whole ? t : t.row_range(member.first_row, member.rows);
      };
      all.push_back({member.name + ".m", rows(x.m)});
      all.push_back({member.name + ".v", rows(x.v)});
    }
  return all;
}

}  // namespace compact
