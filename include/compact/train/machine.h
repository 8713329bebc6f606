#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace compact {

/// The threads a process may use: `wanted`, or for 0 the CPUs of the affinity mask divided by the ranks on
/// the machine (one at least). Sets OpenMP's number to it and returns it.
int use_threads(std::int64_t wanted, int ranks_on_machine);

/// Resident bytes of this process now.
std::int64_t resident_bytes();

/// Bytes that this process may still take: the least of free memory, the control group's rest and the
/// address-space limit.
std::int64_t available_bytes();

/// Throws RunError when `bytes` cannot be had; the message names the largest categories' cure.
void require_available(std::int64_t bytes, const std::string& table);

/// The machine's fp32 GEMM speed with the present number of threads, in operations a second: the best of
/// several products of 1536³, measured once (about a tenth of a second) and cached in $XDG_CACHE_HOME/compact
/// (or
/// ~/.cache/compact) by CPU and threads. A cached speed below `seen`, which the caller has measured, came
/// from a busy moment: it is measured again, and the result is never below `seen`.
double gemm_peak(double seen);

/// Name of the CPU, e.g. "Intel(R) Xeon(R) Processor".
std::string cpu_name();

}  // namespace compact
