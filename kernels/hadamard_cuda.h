#pragma once
#include <bit>
#include <cstdint>

#include "compact/core/tensor.h"
#include "compact/cuda/queue.h"
#include "compact/kernels/projection.h"

/// The subsampled randomized Hadamard transform, of up to 2^kLongestTransform points: rows that a block holds
/// in shared memory as fp32, 64 KiB on every card. Wider inputs go through products with rows of P.
namespace compact::cuda {

inline constexpr int kLongestTransform = 14;

/// log2 of the transform's points.
inline int hadamard_points(const Projection& p) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(p.n) - 1));
}
inline bool hadamard_transforms(const Projection& p) { return hadamard_points(p) <= kLongestTransform; }

/// Words of the signs, one bit for each of the 2^points inputs, made four at a time.
inline std::int64_t hadamard_sign_words(const Projection& p) {
  return ((std::int64_t{1} << hadamard_points(p)) + 127) / 128 * 4;
}
/// I32 of workspace for a draw: signs and sample of this window. A long sample is sorted behind them, in keys
/// of 64 bits.
inline std::int64_t hadamard_draw_size(const Projection& p) {
  const std::int64_t sample = (p.r + 3) / 4 * 4,
                     keys = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(p.r)));
  return hadamard_sign_words(p) + sample + (hadamard_transforms(p) ? 0 : 2 * keys);
}

// `drawn` is [hadamard_draw_size(p)] I32.
void hadamard_draw(Queue& queue, const Projection& p, const Tensor& drawn);
/// Of any size. The others: up to 2^kLongestTransform points.
void hadamard_rows(Queue& queue, const Projection& p, const Tensor& drawn, std::int64_t begin,
                   const Tensor& tile);
void hadamard_project(Queue& queue, const Projection& p, const Tensor& drawn, const Tensor& x,
                      const Tensor& z);
void hadamard_expand(Queue& queue, const Projection& p, const Tensor& drawn, const Tensor& d, float kept,
                     const Rounding& rounding, const float* gate, const Tensor& w);

}  // namespace compact::cuda
