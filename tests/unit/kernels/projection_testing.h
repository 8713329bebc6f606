#pragma once
#include <string>
#include <vector>

#include "compact/kernels/projection.h"
#include "unit/kernels/op_testing.h"

/// Projections of every kind for tests.
namespace compact::testing {

inline const std::vector<std::string> kKinds = {"gaussian", "orthonormal", "hadamard", "sparse"};

struct Drawn {
  std::uint64_t seed = 42;
  std::uint32_t id = 7, window = 3;
};

/// P of this kind, with its matrix made where the kind keeps one.
inline Projection projection(Bench& bench, const std::string& kind, std::int64_t n, std::int64_t r,
                             DType dtype = DType::F32, const Drawn& drawn = {}) {
  Projection p{projection_kind_from(kind), drawn.seed, drawn.id, drawn.window, n, r, dtype};
  if (keeps_matrix(p.kind)) {
    p.matrix = bench.make({n, r}, dtype);
    prepare_projection(bench.context, p);
  }
  return p;
}

/// True where the kind has no P of more columns than rows.
inline bool at_most_n(const std::string& kind) { return kind == "orthonormal" || kind == "hadamard"; }

/// P [n, r], row by row.
inline std::vector<float> whole(Bench& bench, const Projection& p, DType tile_type = DType::F32) {
  const Tensor tile = bench.make({p.n, p.r}, tile_type);
  projection_rows(bench.context, p, 0, tile);
  return values(tile);
}

/// a [M, K] · b [K, N] in double, b transposed on demand ([N, K]).
inline std::vector<double> product(const std::vector<float>& a, const std::vector<float>& b, std::int64_t M,
                                   std::int64_t K, std::int64_t N, bool transposed = false) {
  std::vector<double> out(static_cast<std::size_t>(M * N), 0.0);
  for (std::int64_t i = 0; i < M; ++i)
    for (std::int64_t k = 0; k < K; ++k)
      for (std::int64_t j = 0; j < N; ++j)
        out[static_cast<std::size_t>(i * N + j)] +=
            static_cast<double>(a[static_cast<std::size_t>(i * K + k)]) *
            static_cast<double>(b[static_cast<std::size_t>(transposed ? j * K + k : k * N + j)]);
  return out;
}

struct ProjectionSize {
  std::int64_t N, n, r;
};
/// Ones, r no multiple of 4, r = n, tails of every vector width, and two that need several slices, the last
/// of them cut. A CUDA device takes these both with P on the fly and in memory.
inline const std::vector<ProjectionSize> kProjectionSizes = {
    {1, 1, 1},     {3, 1, 5},     {4, 7, 1},      {5, 9, 9},
    {2, 2, 2},     {17, 33, 6},   {8, 64, 16},    {19, 70, 3},
    {33, 100, 37}, {40, 129, 64}, {16, 5, 4},     {16, 8, 8},
    {3, 700, 331}, {6, 1500, 40}, {3, 700, 1031}, {2, 40, on_cuda() ? 3000 : 30000}};

}  // namespace compact::testing
