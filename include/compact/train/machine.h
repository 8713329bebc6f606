#pragma once
#include <cstdint>
#include <string>

#include "compact/core/dtype.h"

namespace compact {

namespace cuda {
class Queue;
}

/// The threads a process may use: `wanted`, or for 0 the CPUs of the affinity mask divided by the ranks on
/// the machine (one at least). Sets OpenMP's number to it and returns it.
int use_threads(std::int64_t wanted, int ranks_on_machine);

/// Resident bytes of this process now.
std::int64_t resident_bytes();

/// The most bytes of this process that were ever resident.
std::int64_t resident_peak_bytes();

/// Bytes that this process may still take: the least of free memory, the control group's rest and the
/// address-space limit.
std::int64_t available_bytes();

/// Throws RunError when `bytes` cannot be had; the message names the largest categories' cure.
void require_available(std::int64_t bytes, const std::string& table);

/// Speeds of the machine with the present number of threads, measured now (about a tenth of a second each).
/// GEMM: operations a second of products of `type` (F32, BF16), the best of several of 1536³. Memory: bytes a
/// second of adding and of reading arrays far larger than the cache, every operand counted once where it is
/// read and once where it is written, the best of several.
/// With a queue those of its CUDA device, by our own products and copies on it: as large ones (up to 8192³,
/// and arrays of 1 GiB) as half of its free memory holds and as take no more than some milliseconds. 0 where
/// it has no memory left to measure with.
double measure_gemm_peak(DType type, cuda::Queue* queue = nullptr);
double measure_memory_bandwidth(cuda::Queue* queue = nullptr);

/// The same, measured once and cached in $XDG_CACHE_HOME/compact (or ~/.cache/compact) by CPU and threads, or
/// by the card's name. A cached speed below `seen`, which the caller has measured, came from a busy moment:
/// it is measured again, and the result is never below `seen`.
double gemm_peak(DType type, double seen, cuda::Queue* queue = nullptr);
double memory_bandwidth(double seen, cuda::Queue* queue = nullptr);

/// What a run's operations a second are a fraction of: on the CPU gemm_peak; on a CUDA device the data
/// sheet's peak of products of `type` where the card is known (compact/cuda/device.h), else gemm_peak. With
/// cuda.tf32 the sheet's fp32 peak is not that of fp32 products, so it is measured. Not below `seen`.
double reference_peak(DType type, double seen, cuda::Queue* queue);

/// Name of the CPU, e.g. "Intel(R) Xeon(R) Processor".
std::string cpu_name();

}  // namespace compact
