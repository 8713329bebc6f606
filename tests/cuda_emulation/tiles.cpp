#include <cstring>

#include "cuda_tiles.h"

namespace compact::cuda::emulation {

void multiply_tiles(unsigned char* places) {
  Operands lanes[32];
  float a[16][16], b[16][8], c[16][8];
  for (int l = 0; l < 32; ++l) {
    Operands& own = lanes[l];
    std::memcpy(&own, places + static_cast<std::size_t>(l) * kExchangeBytes, sizeof(own));
    const int g = l / 4, t = 2 * (l % 4);
    for (int i = 0; i < 4; ++i) {  // rows g, g + 8 of the left half, then of the right one
      const int row = g + i % 2 * 8, column = t + i / 2 * 8;
      a[row][column] = low(own.a[i]);
      a[row][column + 1] = high(own.a[i]);
      c[g + i / 2 * 8][t + i % 2] = own.c[i];
    }
    for (int i = 0; i < 2; ++i) {
      b[t + 8 * i][g] = low(own.b[i]);
      b[t + 8 * i + 1][g] = high(own.b[i]);
    }
  }
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
  for (int l = 0; l < 32; ++l) {
    Operands& own = lanes[l];
    const int g = l / 4, t = 2 * (l % 4);
    for (int i = 0; i < 4; ++i) own.c[i] = c[g + i / 2 * 8][t + i % 2];
    std::memcpy(places + static_cast<std::size_t>(l) * kExchangeBytes, &own, sizeof(own));
  }
}

}  // namespace compact::cuda::emulation
