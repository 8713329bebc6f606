#pragma once
#include <span>
#include <vector>

#include "compact/io/safetensors.h"
#include "compact/memory/context.h"
#include "compact/nn/parameter.h"

namespace compact {

/// The two moments of every parameter, each with the shape of its gradient; shared by the Adam family.
class AdamStates {
 public:
  void allocate(Context& context, std::span<const Parameter> parameters, DType dtype);
  const Tensor& m(std::size_t i) const { return moments_[i].m; }
  const Tensor& v(std::size_t i) const { return moments_[i].v; }
  /// Every member's rows as "<name>.m" and "<name>.v".
  std::vector<NamedTensor> named() const;

 private:
  struct Moments {
    std::vector<Member> members;
    Tensor m, v;
  };
  std::vector<Moments> moments_;
};

}  // namespace compact
