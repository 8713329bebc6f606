#pragma once
#include "compact/core/bf16.h"
#include "compact/core/dtype.h"

namespace compact {

/// Calls f with a value of the type of the elements, float or Bf16, for it to take the type from.
template <typename F>
void by_type(DType dtype, F&& f) {
  if (dtype == DType::BF16)
    f(Bf16{});
  else
    f(float{});
}

}  // namespace compact
