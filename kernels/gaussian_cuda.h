#pragma once
#include <cmath>
#include <cstdint>

#include "compact/core/philox.h"
#include "compact/kernels/projection.h"
#include "kernels/fours_cuda.h"
#include "kernels/normal_math.h"
#include "kernels/philox_cuda.h"

/// Elements of a gaussian P made where they are used (compact/kernels/projection.h).
namespace compact::cuda {

/// P [rows, cols] as kernels take it.
struct Gaussian {
  std::uint64_t seed;
  std::uint32_t window, stream_id;
  float scale;
  std::uint32_t through_bf16;  ///< P is of BF16
  std::int64_t rows, cols;
};

inline Gaussian gaussian(const Projection& p) {
  return {p.seed,
          p.window,
          stream_word(Stream::Projection, p.id),
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.r))),
          p.dtype == DType::BF16 ? 1u : 0u,
          p.n,
          p.r};
}

/// scale · the four deviates of a Philox block (kernels/normal_math.h).
__device__ __forceinline__ Four normal_four(const uint4& words, float scale) {
  Four four;
  normal_pair(words.x, words.y, four.x[0], four.x[1]);
  normal_pair(words.z, words.w, four.x[2], four.x[3]);
#pragma unroll
  for (float& x : four.x) x = scale * x;
  return four;
}

/// P[row, column .. column + 3], column a multiple of four, in fp32 before any rounding; zeros outside of P.
__device__ __forceinline__ Four four_deviates(const Gaussian& p, std::int64_t row, std::int64_t column) {
  Four four{};
  if (row >= p.rows || column >= p.cols) return four;
  four = normal_four(philox_words(static_cast<std::uint32_t>(column / 4), static_cast<std::uint32_t>(row),
                                  p.window, p.stream_id, p.seed),
                     p.scale);
#pragma unroll
  for (int k = 0; k < 4; ++k) four.x[k] = column + k < p.cols ? four.x[k] : 0.0f;
  return four;
}

}  // namespace compact::cuda
