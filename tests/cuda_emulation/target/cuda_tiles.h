#pragma once
#include <cstdint>
#include <cstring>

#include "compact/core/bf16.h"
#include "cuda_emulation/fibers.h"

/// What kernels/mma_cuda.h promises, by exchanges between the fibers of a warp.
namespace compact::cuda {

namespace emulation {
struct Operands {
  std::uint32_t a[4], b[2];
};
inline float low(std::uint32_t pair) { return to_float(Bf16{static_cast<std::uint16_t>(pair)}); }
inline float high(std::uint32_t pair) { return to_float(Bf16{static_cast<std::uint16_t>(pair >> 16)}); }

/// Tiles of 8 x 8 from the rows that lanes point at.
template <int kTiles, bool kTransposed>
void load_tiles(std::uint32_t (&r)[kTiles], const void* row) {
  const int own = lane(), g = own / 4, t = own % 4;
  unsigned char bytes[16] = {};
  if (own < 8 * kTiles) {
    require_aligned(row, 16);
    std::memcpy(bytes, row, 16);  // before the barrier: later writes of other lanes must not show
  }
  const unsigned char* places = exchange(bytes, 16);
  const auto element = [&](int tile, int at_row, int column) {
    std::uint16_t value;
    std::memcpy(&value, places + static_cast<std::size_t>(8 * tile + at_row) * kExchangeBytes + 2 * column,
                2);
    return std::uint32_t{value};
  };
  for (int i = 0; i < kTiles; ++i)
    r[i] = kTransposed ? element(i, 2 * t, g) | element(i, 2 * t + 1, g) << 16
                       : element(i, g, 2 * t) | element(i, g, 2 * t + 1) << 16;
}
}  // namespace emulation

inline void mma_bf16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  emulation::Operands own{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const unsigned char* places = emulation::exchange(&own, sizeof(own));
  const auto of = [&](int lane) {
    emulation::Operands o;
    std::memcpy(&o, places + static_cast<std::size_t>(lane) * emulation::kExchangeBytes, sizeof(o));
    return o;
  };
  const int g = emulation::lane() / 4, t = emulation::lane() % 4;
  for (int half = 0; half < 2; ++half)  // k below 8, then the others
    for (int j = 0; j < 4; ++j) {       // columns 2j, 2j + 1 of a, rows of b
      const emulation::Operands rows = of(4 * g + j), even = of(4 * (2 * t) + j),
                                odd = of(4 * (2 * t + 1) + j);
      const std::uint32_t top = rows.a[2 * half], bottom = rows.a[2 * half + 1];
      const std::uint32_t columns[2] = {even.b[half], odd.b[half]};
      for (int i = 0; i < 2; ++i) {
        c[i] = c[i] + emulation::low(top) * emulation::low(columns[i]) +
               emulation::high(top) * emulation::high(columns[i]);
        c[2 + i] = c[2 + i] + emulation::low(bottom) * emulation::low(columns[i]) +
                   emulation::high(bottom) * emulation::high(columns[i]);
      }
    }
}

inline void load_tiles_4(std::uint32_t (&r)[4], const void* row) { emulation::load_tiles<4, false>(r, row); }
inline void load_tiles_4_transposed(std::uint32_t (&r)[4], const void* row) {
  emulation::load_tiles<4, true>(r, row);
}
inline void load_tiles_2(std::uint32_t (&r)[2], const void* row) { emulation::load_tiles<2, false>(r, row); }
inline void load_tiles_2_transposed(std::uint32_t (&r)[2], const void* row) {
  emulation::load_tiles<2, true>(r, row);
}

/// Done at once. A kernel that reads before it waits is found by the poison only on a card.
inline void copy_async_16(void* to, const void* from, bool valid) {
  emulation::require_aligned(to, 16);
  if (!valid) {
    std::memset(to, 0, 16);
    return;
  }
  emulation::require_aligned(from, 16);
  std::memcpy(to, from, 16);
}
inline void copy_async_commit() {}
template <int kGroups>
void copy_async_wait() {}

inline std::uint32_t pack_bf16(float low, float high) {
  return nearest_bf16(low).bits | std::uint32_t{nearest_bf16(high).bits} << 16;
}

}  // namespace compact::cuda
