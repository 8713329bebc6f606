#include <omp.h>

#include <cmath>

#include "kernels/checks.h"
#include "kernels/orthonormal_cpu.h"
#include "kernels/projection_kinds.h"

namespace compact {

void prepare_projection(Context& context, const Projection& p) {
  const char* op = "prepare_projection";
  check_projection(p, op);
  require(keeps_matrix(p.kind), op, "this kind keeps no matrix");
  const OpScope timed(context.clock, Op::Projection, bytes_of({p.matrix}));
  const ScratchScope scope(context.arena);
  const std::int64_t n = p.n, r = p.r, ld = (n + 15) / 16 * 16;
  // Doubles, as pairs of fp32: r columns of n, padded with zeros.
  const Tensor columns = context.arena.scratch("orthonormal columns", {r, 2 * ld}, DType::F32);
  const Tensor factors = context.arena.scratch("orthonormal factors", {2 * r}, DType::F32);
  {
    // Its deviates have standard deviation 1 / sqrt(r), which Q does not see.
    Projection gaussian = p;
    gaussian.kind = ProjectionKind::Gaussian;
    gaussian.dtype = DType::F32;
    const ScratchScope slice_scope(context.arena);
    const Slices slices(context, gaussian, DType::F32);
    for (std::int64_t begin = 0; begin < n; begin += slices.step()) {
      const Tensor rows = slices.rows(context, begin);
      if (context.planning()) continue;
      COMPACT_CALL(fill_columns, static_cast<double*>(columns.data), ld, rows.f32(), begin, rows.rows(), r);
    }
  }
  const Tensor work =
      context.arena.scratch("orthonormal columns", {omp_get_max_threads(), 4, 2 * ld}, DType::F32);
  if (context.planning()) return;
  auto* at = static_cast<double*>(columns.data);
  auto* tau = static_cast<double*>(factors.data);
  COMPACT_CALL(householder, at, ld, n, r, tau);
  const double scale = std::sqrt(static_cast<double>(n) / static_cast<double>(r));
  by_type(p.dtype, [&](auto type) {
    COMPACT_CALL(form_q, at, ld, n, r, tau, scale, static_cast<double*>(work.data),
                 p.matrix.as<decltype(type)>(), p.matrix.ld);
  });
}

}  // namespace compact
