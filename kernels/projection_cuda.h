#pragma once
#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/projection.h"

namespace compact::cuda {

/// True where making P on the fly, in shared memory of the kernel that multiplies by it, costs less than a
/// pass over P in memory: where few rows (of x, or of d) meet it.
bool projects_on_the_fly(const Projection& p, std::int64_t rows);

/// z [N, r] = x [N, n] · P. `rows_of_p` is [n, r] of P in memory, or empty: P is made on the fly.
void project(Queue& queue, const Projection& p, const Tensor& rows_of_p, const Tensor& x, const Tensor& z);
/// w [m, n] = kept · w + d [m, r] · (rows of P [n, r])ᵀ in one pass over w, rounded as `rounding` says;
/// column j of w is column first_column + j of the weight. `rows_of_p` as above.
void expand_add(Queue& queue, const Projection& p, const Tensor& rows_of_p, const Tensor& d, float kept,
                const Rounding& rounding, const float* gate, std::int64_t first_column, const Tensor& w);

}  // namespace compact::cuda
