#pragma once
#include <cstdint>

#include "compact/core/bf16.h"
#include "kernels/cpu_isa.h"

/// Householder QR in double. Columns lie one after another, `ld` apart: n rounded up to a multiple of 16.
/// Every sum has an order that depends on no instruction set and no number of threads.
COMPACT_PER_ISA(
    /// columns [.., ld] from row `first_row` on = the transpose of tile [rows, r].
    void fill_columns(double* columns, std::int64_t ld, const float* tile, std::int64_t first_row,
                      std::int64_t rows, std::int64_t r);
    /// Leaves in column k of the matrix [n, r] the vector of its reflector, zeros above element k, and in
    /// tau[k] its factor: I - tau v vᵀ.
    void householder(double* columns, std::int64_t ld, std::int64_t n, std::int64_t r, double* tau);
    /// q [n, r], rows ldq apart = scale · the first r columns of the product of the reflectors, rounded to
    /// nearest. `work` is [threads, 4 · ld].
    void form_q(const double* columns, std::int64_t ld, std::int64_t n, std::int64_t r, const double* tau,
                double scale, double* work, float* q, std::int64_t ldq);
    void form_q(const double* columns, std::int64_t ld, std::int64_t n, std::int64_t r, const double* tau,
                double scale, double* work, Bf16* q, std::int64_t ldq);)
