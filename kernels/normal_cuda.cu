#include "kernels/normal_cuda.h"

#include "kernels/by_type.h"
#include "kernels/gaussian_cuda.h"
#include "kernels/tiles_cuda.h"

namespace compact::cuda {

namespace {

using Cut = Tiles<1>;  // an item is the four columns of a Philox block

/// Reads nothing and writes each element once, but an element costs about 60 instructions: the 3·10^13
/// lane-instructions a second of an H200 make at most 5·10^11 deviates, 1 TB/s of bf16, so the floor is the
/// arithmetic. `whole`: all groups of four are whole, at addresses where they are one vector.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    normal_kernel(Cut cut, T* out, std::int64_t ld, std::int64_t cols, std::uint32_t first_row, float scale,
                  std::uint64_t seed, std::uint32_t window, std::uint32_t stream_id, int through_bf16,
                  int whole) {
  const std::int64_t row = cut.row(), item = cut.item();
  if (row >= cut.rows || item >= cut.items) return;
  const uint4 words = philox_words(static_cast<std::uint32_t>(item),
                                   first_row + static_cast<std::uint32_t>(row), window, stream_id, seed);
  const Four deviates = normal_four(words, scale);
  Elements<T, 4> made;
  for (int k = 0; k < 4; ++k)
    put(made.at[k], through_bf16 != 0 ? to_float(nearest_bf16(deviates.x[k])) : deviates.x[k]);
  const std::int64_t at = row * ld + 4 * item;
  if (whole != 0)
    store_elements(out, at, made);
  else
    for (int k = 0; k < 4; ++k)
      if (4 * item + k < cols) out[at + k] = made.at[k];
}

}  // namespace

void normal_rows(Queue& queue, const Tensor& tile, std::int64_t begin, float scale, std::uint64_t seed,
                 std::uint32_t window, std::uint32_t stream_id, bool through_bf16) {
  if (tile.elements() == 0) return;
  const Cut cut(tile.rows(), (tile.cols() + 3) / 4);
  by_type(tile.dtype, [&](auto type) {
    using T = decltype(type);
    launch(queue, cut.launch("normal_rows"), normal_kernel<T>, cut, tile.as<T>(), tile.ld, tile.cols(),
           static_cast<std::uint32_t>(begin), scale, seed, window, stream_id, through_bf16 ? 1 : 0,
           takes_vectors(tile, 4) ? 1 : 0);
  });
}

}  // namespace compact::cuda
