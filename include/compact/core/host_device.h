#pragma once

/// Marks a function that kernels call as well as the host. Such a function is plain arithmetic: no standard
/// library, no globals.
#ifdef __CUDACC__
#define COMPACT_HOST_DEVICE __host__ __device__
#else
#define COMPACT_HOST_DEVICE
#endif
