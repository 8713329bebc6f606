#pragma once
#include <span>

#include "compact/core/tensor.h"

namespace compact {

/// out = pieces[0] + pieces[1] + ..., added in that order, in host memory: all contiguous, of one size and
/// type. F32 and BF16 are summed in fp32, BF16 rounded once to nearest; F64 in double. out may be one of the
/// pieces. Runs on the calling thread alone, beside what others compute, so it takes no Context.
void sum_pieces(std::span<const Tensor> pieces, const Tensor& out);

}  // namespace compact
