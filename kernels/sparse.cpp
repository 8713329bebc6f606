#include <omp.h>

#include <cmath>

#include "compact/core/philox.h"
#include "kernels/checks.h"
#include "kernels/projection_kinds.h"
#include "kernels/sparse_cpu.h"
#include "kernels/sparse_cuda.h"

namespace compact {

namespace {

/// Elements of a row that are not 0, one in each quarter of the columns: one Philox block draws them, and
/// their size, 1 / sqrt(4), is exact in bf16.
constexpr std::int64_t kQuarters = 4;

std::int64_t count_of(const Projection& p) { return p.r >= kQuarters ? kQuarters : 1; }

/// Row i of P, from the words of the block (0, i, window, stream projection << 24 | id): the lowest bit of
/// word k is the sign, the others the place in part k of the columns.
void draw_row(const Projection& p, std::int64_t i, std::int64_t count, std::uint32_t* places) {
  const auto words =
      philox({0, static_cast<std::uint32_t>(i), p.window, stream_word(Stream::Projection, p.id)}, p.seed);
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t begin = p.r * k / count, size = p.r * (k + 1) / count - begin;
    const std::uint32_t w = words[static_cast<std::size_t>(k)];
    const auto place =
        static_cast<std::uint64_t>(begin) + (std::uint64_t{w >> 1} * static_cast<std::uint64_t>(size) >> 31);
    places[k] = static_cast<std::uint32_t>(place) << 1 | (w & 1u);
  }
}

/// Draws P: n · count numbers in the caller's scratch scope, anew at every use.
SparseDraw draw(Context& context, const Projection& p) {
  const std::int64_t count = count_of(p);
  const Tensor places = context.arena.scratch("sparse places", {p.n, count}, DType::I32);
  auto* to = places.as<std::uint32_t>();
  if (!context.planning())
    for (std::int64_t i = 0; i < p.n; ++i) draw_row(p, i, count, to + i * count);
  return {p.n, p.r, count, to, count == 1 ? 1.0f : 0.5f};
}

/// One tile of 16 rows of z or d for each thread.
Tensor tiles(Context& context, const Projection& p) {
  return context.arena.scratch("sparse tiles", {omp_get_max_threads(), p.r, 16}, DType::F32);
}

}  // namespace

void sparse_rows(Context& context, const Projection& p, std::int64_t begin, const Tensor& tile) {
  if (context.on_cuda()) {
    if (!context.planning()) cuda::sparse_rows(*context.queue, p, begin, tile);
    return;
  }
  const ScratchScope scope(context.arena);
  const SparseDraw drawn = draw(context, p);
  if (context.planning()) return;
  by_type(tile.dtype, [&](auto type) {
    COMPACT_CALL(sparse_rows, drawn, begin, tile.as<decltype(type)>(), tile.ld, tile.rows());
  });
}

void sparse_project(Context& context, const Projection& p, const Tensor& x, const Tensor& z) {
  const OpScope timed(context.clock, Op::Projection, bytes_of({x, z}));
  const ScratchScope scope(context.arena);
  if (context.on_cuda()) {
    const Tensor lists = context.arena.scratch("sparse lists", {cuda::SparseLists(p).size(p)}, DType::I32);
    if (!context.planning()) cuda::sparse_project(*context.queue, p, lists, x, z);
    return;
  }
  const SparseDraw drawn = draw(context, p);
  const Tensor work = tiles(context, p);
  if (context.planning()) return;
  if (x.dtype == DType::F32) {
    COMPACT_CALL(sparse_project, drawn, x.f32(), x.ld, z.f32(), z.ld, x.rows(), work.f32());
    return;
  }
  by_type(z.dtype, [&](auto type) {
    COMPACT_CALL(sparse_project, drawn, x.as<Bf16>(), x.ld, z.as<decltype(type)>(), z.ld, x.rows(),
                 work.f32());
  });
}

void sparse_expand(Context& context, const Projection& p, const Tensor& d, float kept,
                   const Rounding& rounding, const Tensor& w, const float* gate) {
  const OpScope timed(context.clock, Op::Projection, bytes_of({d, w, w}));
  if (context.on_cuda()) {
    if (!context.planning()) cuda::sparse_expand(*context.queue, p, d, kept, rounding, gate, w);
    return;
  }
  const ScratchScope scope(context.arena);
  const SparseDraw drawn = draw(context, p);
  const Tensor work = tiles(context, p);
  if (context.planning()) return;
  by_type(d.dtype, [&](auto d_type) {
    by_type(w.dtype, [&](auto w_type) {
      COMPACT_CALL(sparse_expand, drawn, d.as<decltype(d_type)>(), d.ld, w.as<decltype(w_type)>(), w.ld,
                   w.rows(), kept, rounding, work.f32());
    });
  });
}

}  // namespace compact
