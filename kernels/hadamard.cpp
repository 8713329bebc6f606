#include <omp.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "compact/core/philox.h"
#include "kernels/checks.h"
#include "kernels/hadamard_cpu.h"
#include "kernels/hadamard_cuda.h"
#include "kernels/projection_kinds.h"

namespace compact {

namespace {

/// Word `index` of those in the counters (index / 4, row, window, stream projection << 24 | id).
std::uint32_t word(const Projection& p, std::uint32_t row, std::int64_t index) {
  const auto block = philox(
      {static_cast<std::uint32_t>(index / 4), row, p.window, stream_word(Stream::Projection, p.id)}, p.seed);
  return block[static_cast<std::size_t>(index % 4)];
}

/// Bit i of the words of row 0 is the sign of input i.
void draw_signs(const Projection& p, std::uint32_t* signs, std::int64_t s) {
  std::uint32_t bits = 0;
  for (std::int64_t i = 0; i < s; ++i) {
    if (i % 32 == 0) bits = word(p, 0, i / 32);
    signs[i] = bits >> (i % 32) << 31;
  }
}

/// The first r places of `order` become a sample without replacement by the first r steps of a Fisher-Yates
/// shuffle; the words are those of row 1. The largest deviation from uniform is s / 2^32.
void draw_sample(const Projection& p, std::int32_t* order, std::int64_t s) {
  std::iota(order, order + s, 0);
  for (std::int64_t k = 0; k < p.r; ++k) {
    const std::uint64_t left = static_cast<std::uint64_t>(s - k);
    std::swap(order[k], order[k + static_cast<std::int64_t>(word(p, 1, k) * left >> 32)]);
  }
}

/// Draws P: s + r numbers in the caller's scratch scope, anew at every use.
HadamardDraw draw(Context& context, const Projection& p) {
  const auto s = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(p.n)));
  const Tensor signs = context.arena.scratch("hadamard signs", {s}, DType::I32);
  const Tensor order = context.arena.scratch("hadamard sample", {s}, DType::I32);
  const float exact = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.r)));
  const float entry = p.dtype == DType::BF16 ? to_float(nearest_bf16(exact)) : exact;
  if (!context.planning()) {
    draw_signs(p, signs.as<std::uint32_t>(), s);
    draw_sample(p, order.i32(), s);
  }
  return {p.n, p.r, s, signs.as<std::uint32_t>(), order.i32(), entry};
}

/// The same on a CUDA device: its draw, by one launch.
Tensor draw_on_device(Context& context, const Projection& p) {
  const Tensor drawn = context.arena.scratch("hadamard draw", {cuda::hadamard_draw_size(p)}, DType::I32);
  if (!context.planning()) cuda::hadamard_draw(*context.queue, p, drawn);
  return drawn;
}

/// True where the kind's transform is not there for this size, and products with rows of P are made.
bool by_products(const Context& context, const Projection& p) {
  return context.on_cuda() && !cuda::hadamard_transforms(p);
}

/// One tile of 16 transforms for each thread.
Tensor tiles(Context& context, const HadamardDraw& p) {
  return context.arena.scratch("hadamard tiles", {omp_get_max_threads(), p.s, 16}, DType::F32);
}

}  // namespace

void hadamard_rows(Context& context, const Projection& p, std::int64_t begin, const Tensor& tile) {
  const ScratchScope scope(context.arena);
  if (context.on_cuda()) {
    const Tensor drawn = draw_on_device(context, p);
    if (!context.planning()) cuda::hadamard_rows(*context.queue, p, drawn, begin, tile);
    return;
  }
  const HadamardDraw drawn = draw(context, p);
  if (context.planning()) return;
  by_type(tile.dtype, [&](auto type) {
    COMPACT_CALL(hadamard_rows, drawn, begin, tile.as<decltype(type)>(), tile.ld, tile.rows());
  });
}

void hadamard_project(Context& context, const Projection& p, const Tensor& x, const Tensor& z) {
  if (by_products(context, p)) return dense_project(context, p, x, z);
  const OpScope timed(context.clock, Op::Projection, bytes_of({x, z}));
  const ScratchScope scope(context.arena);
  if (context.on_cuda()) {
    const Tensor drawn = draw_on_device(context, p);
    if (!context.planning()) cuda::hadamard_project(*context.queue, p, drawn, x, z);
    return;
  }
  const HadamardDraw drawn = draw(context, p);
  const Tensor work = tiles(context, drawn);
  if (context.planning()) return;
  if (x.dtype == DType::F32) {
    COMPACT_CALL(hadamard_project, drawn, x.f32(), x.ld, z.f32(), z.ld, x.rows(), work.f32());
    return;
  }
  by_type(z.dtype, [&](auto type) {
    COMPACT_CALL(hadamard_project, drawn, x.as<Bf16>(), x.ld, z.as<decltype(type)>(), z.ld, x.rows(),
                 work.f32());
  });
}

void hadamard_expand(Context& context, const Projection& p, const Tensor& d, float kept,
                     const Rounding& rounding, const Tensor& w, const float* gate) {
  if (by_products(context, p)) return dense_expand(context, p, d, kept, rounding, w, gate);
  const OpScope timed(context.clock, Op::Projection, bytes_of({d, w, w}));
  const ScratchScope scope(context.arena);
  if (context.on_cuda()) {
    const Tensor drawn = draw_on_device(context, p);
    if (!context.planning()) cuda::hadamard_expand(*context.queue, p, drawn, d, kept, rounding, gate, w);
    return;
  }
  const HadamardDraw drawn = draw(context, p);
  const Tensor work = tiles(context, drawn);
  if (context.planning()) return;
  by_type(d.dtype, [&](auto d_type) {
    by_type(w.dtype, [&](auto w_type) {
      COMPACT_CALL(hadamard_expand, drawn, d.as<decltype(d_type)>(), d.ld, w.as<decltype(w_type)>(), w.ld,
                   w.rows(), kept, rounding, work.f32());
    });
  });
}

}  // namespace compact
