#pragma once
#include <cstddef>

/// AddressSanitizer in the programs that are built with it, nothing in the others.
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace compact::cuda::emulation {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitized = true;
inline void forbid(const void* memory, std::size_t bytes) { __asan_poison_memory_region(memory, bytes); }
inline void allow(const void* memory, std::size_t bytes) { __asan_unpoison_memory_region(memory, bytes); }
#else
inline constexpr bool kSanitized = false;
inline void forbid(const void*, std::size_t) {}
inline void allow(const void*, std::size_t) {}
#endif

}  // namespace compact::cuda::emulation
