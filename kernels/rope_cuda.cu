#include "kernels/rope_cuda.h"

#include "kernels/by_type.h"
#include "kernels/tiles_cuda.h"

namespace compact::cuda {

namespace {

constexpr int kHeads = 4;  // heads that a thread turns by the cosines and sines that it has loaded
using Cut = Tiles<1>;      // an item: kVector pairs of each of those heads

/// Reads and writes x once: the floor is 2 · bytes of x over the bandwidth of the memory. The table is read
/// once for every four heads, from the second-level cache (a row of it serves all heads and sequences).
template <typename E, int kVector>
__global__ void __launch_bounds__(kTileThreads)
    rope_kernel(Cut cut, E* x, std::int64_t ldx, int heads, int half, std::int64_t T, std::int64_t first,
                const float* table, std::int64_t ldt, float sign) {
  const std::int64_t row = cut.row(), item = cut.item();
  if (row >= cut.rows || item >= cut.items) return;
  const std::int64_t position = first + row % T;
  if (position == 0) return;  // no turn: also -0 and NaN keep their bits
  const int vectors = half / kVector, i = static_cast<int>(item) % vectors * kVector;
  // Heads that neighbouring threads turn together are neighbours.
  const int first_head = static_cast<int>(item) / vectors, step = (heads + kHeads - 1) / kHeads;
  E* const low_at = x + row * ldx + i;

  Elements<E, kVector> low[kHeads], high[kHeads];
  for (int u = 0; u < kHeads; ++u)
    if (const int head = first_head + u * step; head < heads) {
      low[u] = load_elements<kVector>(low_at + head * 2 * half);
      high[u] = load_elements<kVector>(low_at + head * 2 * half + half);
    }
  float cosine[kVector], sine[kVector];
  constexpr int kFloats = kVector < 4 ? kVector : 4;
  for (int k = 0; k < kVector; k += kFloats) {
    const float* at = table + position * ldt + i + k;
    const auto c = load_elements<kFloats>(at), s = load_elements<kFloats>(at + half);
    for (int l = 0; l < kFloats; ++l) {
      cosine[k + l] = c.at[l];
      sine[k + l] = sign * s.at[l];
    }
  }
  for (int u = 0; u < kHeads; ++u)
    if (const int head = first_head + u * step; head < heads) {
      for (int k = 0; k < kVector; ++k) {
        const float a = to_float(low[u].at[k]), b = to_float(high[u].at[k]);
        put(low[u].at[k], a * cosine[k] - b * sine[k]);
        put(high[u].at[k], b * cosine[k] + a * sine[k]);
      }
      store_elements(low_at, head * 2 * half, low[u]);
      store_elements(low_at, head * 2 * half + half, high[u]);
    }
}

}  // namespace

void rope(Queue& queue, const Tensor& x, std::int64_t T, std::int64_t first_position, const Tensor& table,
          float sign) {
  if (x.elements() == 0) return;
  const std::int64_t half = table.cols() / 2, heads = x.cols() / table.cols();
  by_type(x.dtype, [&](auto type) {
    using E = decltype(type);
    const auto run = [&](auto vector) {
      const Cut cut(x.rows(), (heads + kHeads - 1) / kHeads * (half / vector));
      launch(queue, cut.launch("rope"), rope_kernel<E, vector>, cut, x.as<E>(), x.ld, heads, half, T,
             first_position, table.f32(), table.ld, sign);
    };
    constexpr int kVector = 16 / sizeof(E);
    if (half % kVector == 0 && takes_vectors(x, kVector) && takes_vectors(table, 4))
      run(std::integral_constant<int, kVector>{});
    else
      run(std::integral_constant<int, 1>{});
  });
}

}  // namespace compact::cuda
