#include <omp.h>

#include <cmath>
#include <vector>

#include "compact/core/philox.h"
#include "compact/cuda/queue.h"
#include "kernels/checks.h"
#include "kernels/normal_cpu.h"
#include "kernels/orthonormal_cpu.h"
#include "kernels/projection_kinds.h"

namespace compact {

namespace {

/// Doubles in the host's memory. Columns are padded with zeros to `ld`.
struct Factors {
  double* columns;  ///< [r, ld]
  double* tau;      ///< [r]
  double* work;     ///< [threads, 4, ld]
};

std::int64_t column_stride(const Projection& p) { return (p.n + 15) / 16 * 16; }

/// Of the gaussian columns makes Q, scaled and rounded, in q (in the host's memory).
void factorise(const Projection& p, const Factors& f, const Tensor& q) {
  const std::int64_t ld = column_stride(p);
  COMPACT_CALL(householder, f.columns, ld, p.n, p.r, f.tau);
  const double scale = std::sqrt(static_cast<double>(p.n) / static_cast<double>(p.r));
  by_type(p.dtype, [&](auto type) {
    COMPACT_CALL(form_q, f.columns, ld, p.n, p.r, f.tau, scale, f.work, q.as<decltype(type)>(), q.ld);
  });
}

/// Its deviates have standard deviation 1 / sqrt(r), which Q does not see.
Projection gaussian_of(const Projection& p) {
  Projection gaussian = p;
  gaussian.kind = ProjectionKind::Gaussian;
  gaussian.dtype = DType::F32;
  return gaussian;
}

void prepare_in_arena(Context& context, const Projection& p) {
  const ScratchScope scope(context.arena);
  const std::int64_t n = p.n, r = p.r, ld = column_stride(p);
  // Doubles, as pairs of fp32.
  const Tensor columns = context.arena.scratch("orthonormal columns", {r, 2 * ld}, DType::F32);
  const Tensor factors = context.arena.scratch("orthonormal factors", {2 * r}, DType::F32);
  {
    const Projection gaussian = gaussian_of(p);
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
  factorise(p,
            {static_cast<double*>(columns.data), static_cast<double*>(factors.data),
             static_cast<double*>(work.data)},
            p.matrix);
}

/// On the host, as a run on the CPU does it: the same bits, and no double precision on cards that have little
/// of it. Once a window; the device's memory takes the result only.
void prepare_on_host(Context& context, const Projection& p) {
  constexpr std::int64_t kRows = 64;
  const std::int64_t n = p.n, r = p.r, ld = column_stride(p);
  const auto doubles = [](std::int64_t count) {
    return std::vector<double>(static_cast<std::size_t>(count));
  };
  std::vector<double> columns = doubles(r * ld), tau = doubles(r),
                      work = doubles(omp_get_max_threads() * 4 * ld);
  {
    std::vector<float> rows(static_cast<std::size_t>(kRows * r));
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(r)));
    for (std::int64_t begin = 0; begin < n; begin += kRows) {
      const std::int64_t count = n - begin < kRows ? n - begin : kRows;
      COMPACT_CALL(normal_rows, rows.data(), r, begin, count, r, scale, p.seed, p.window,
                   stream_word(Stream::Projection, p.id));
      COMPACT_CALL(fill_columns, columns.data(), ld, rows.data(), begin, count, r);
    }
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(p.matrix.bytes()));
  const Tensor q(bytes.data(), {n, r}, p.dtype);
  factorise(p, {columns.data(), tau.data(), work.data()}, q);
  if (p.matrix.contiguous()) return context.queue->upload(q.data, p.matrix.data, q.bytes());
  for (std::int64_t i = 0; i < n; ++i) {
    const Tensor row = q.row_range(i, 1);
    context.queue->upload(row.data, p.matrix.row_range(i, 1).data, row.bytes());
  }
}

}  // namespace

void prepare_projection(Context& context, const Projection& p) {
  const char* op = "prepare_projection";
  check_projection(p, op);
  require(keeps_matrix(p.kind), op, "this kind keeps no matrix");
  const OpScope timed(context.clock, Op::Projection, bytes_of({p.matrix}));
  if (!context.on_cuda()) return prepare_in_arena(context, p);
  if (!context.planning()) prepare_on_host(context, p);
}

}  // namespace compact
