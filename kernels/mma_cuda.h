#pragma once
#include "cuda_tiles.h"  // of kernels/card for nvcc, of tests/cuda_emulation for the CPU

/// Products of small tiles by the tensor cores (sm_80 and newer), for a whole warp; and copies into shared
/// memory that run beside it. Each function has a body for the card and one for the CPU (cuda_tiles.h).
/// - mma_bf16(c, a, b): c [16, 8] fp32 += a [16, 16] bf16 · b [16, 8] bf16
/// - load_tiles_4(r, row): ldmatrix.x4, four 8 x 8 tiles of 16-bit elements from shared memory
/// - load_tiles_4_transposed(r, row): the same, each tile transposed
/// - copy_async_16(to, from, valid): 16 bytes from global to shared memory, both 16-byte aligned; zeros where
///   `valid` is false (`from` is then not read)
/// - copy_async_commit(), copy_async_wait<N>(): a group of copies; wait until at most N are on their way
/// - pack_bf16(low, high): two floats to a register of two bf16, nearest even
///
/// Where the elements lie, with g = lane / 4 and t = lane % 4; a register holds two neighbours, the first in
/// the low half:
/// - c[0], c[1]: row g, columns 2t, 2t + 1; c[2], c[3]: row g + 8
/// - a[0]: row g, columns 2t, 2t + 1; a[1]: row g + 8; a[2]: row g, columns 2t + 8, + 9; a[3]: row g + 8
///   and those columns
/// - b[0]: rows 2t, 2t + 1 of column g; b[1]: rows 2t + 8, 2t + 9
///
/// load_tiles_4: lanes 0 to 7 give the addresses of the eight rows (16 bytes each, 16-byte aligned) of the
/// first tile, 8 to 15 those of the second, and so on. r[i] of a lane is elements 2t, 2t + 1 of row g of tile
/// i; transposed, elements g of rows 2t, 2t + 1. So a row-major a is loaded with lane l pointing at row l %
/// 16, column 8 (l / 16); two neighbouring b that lie as [n, k] (k contiguous) with lane l at row l / 16 · 8
/// + l % 8, column 8 (l / 8 % 2); two that lie as [k, n], transposed, with lane l at row l % 16, column 8 (l
/// / 16).
