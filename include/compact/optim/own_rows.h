#pragma once
#include <span>
#include <vector>

#include "compact/nn/parameter.h"

namespace compact {

/// What `rank` of `size` ranks updates of `parameters` where each has its own rows alone
/// (compact/dist/rows.h): the same parameters in the same order, whose weight and gradient are views of those
/// rows; of some there may be none. Every member stays, with those of its rows. A norm [C] is the last
/// rank's; for the others it is [0, C].
std::vector<Parameter> own_rows(std::span<const Parameter> parameters, int rank, int size);

}  // namespace compact
