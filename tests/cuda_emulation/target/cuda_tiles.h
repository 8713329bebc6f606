#pragma once
#include <cstdint>
#include <cstring>

#include "compact/core/bf16.h"
#include "cuda_emulation/block_memory.h"
#include "cuda_emulation/fibers.h"

/// What kernels/mma_cuda.h promises, by exchanges between the fibers of a warp.
namespace compact::cuda {

namespace emulation {
struct Operands {
  std::uint32_t a[4], b[2];
  float c[4];
};
inline float low(std::uint32_t pair) { return to_float(Bf16{static_cast<std::uint16_t>(pair)}); }
inline float high(std::uint32_t pair) { return to_float(Bf16{static_cast<std::uint16_t>(pair >> 16)}); }

/// The product of a whole warp, from and to the operands of its lanes.
void multiply_tiles(unsigned char* places);

/// Tiles of 8 x 8 from the rows that lanes point at.
template <int kTiles, bool kTransposed>
void load_tiles(std::uint32_t (&r)[kTiles], const void* row, Site site) {
  const int own = lane(), g = own / 4, t = own % 4;
  unsigned char bytes[16] = {};
  if (own < 8 * kTiles) {
    require_aligned(row, 16);
    std::memcpy(bytes, row, 16);  // before the barrier: later writes of other lanes must not show
  }
  const unsigned char* places = exchange(bytes, 16, site);
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

inline void mma_bf16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                     emulation::Site site = emulation::Site::current()) {
  emulation::Operands own{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {c[0], c[1], c[2], c[3]}};
  const unsigned char* places = emulation::exchange(&own, sizeof(own), site, emulation::multiply_tiles);
  std::memcpy(&own, places + static_cast<std::size_t>(emulation::lane()) * emulation::kExchangeBytes,
              sizeof(own));
  for (int i = 0; i < 4; ++i) c[i] = own.c[i];
}

inline void load_tiles_4(std::uint32_t (&r)[4], const void* row,
                         emulation::Site site = emulation::Site::current()) {
  emulation::load_tiles<4, false>(r, row, site);
}
inline void load_tiles_4_transposed(std::uint32_t (&r)[4], const void* row,
                                    emulation::Site site = emulation::Site::current()) {
  emulation::load_tiles<4, true>(r, row, site);
}
/// Done when it is waited for, as late as a card might.
inline void copy_async_16(void* to, const void* from, bool valid) { emulation::copy_later(to, from, valid); }
inline void copy_async_commit() { emulation::commit_copies(); }
template <int kGroups>
void copy_async_wait() {
  emulation::wait_for_copies(kGroups);
}

inline std::uint32_t pack_bf16(float low, float high) {
  return nearest_bf16(low).bits | std::uint32_t{nearest_bf16(high).bits} << 16;
}

}  // namespace compact::cuda
