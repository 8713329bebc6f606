#pragma once
#include <cstddef>

/// The memory of the emulated devices, and page-locked host memory.
namespace compact::cuda::emulation {

/// Poisoned memory with guards on both sides; null where the system has none left.
void* allocate_guarded(std::size_t bytes);
/// Ends the program where a guard was written.
void free_guarded(void* memory);

/// A tensor lies here: what an arena gets next time is poisoned again where tensors lay. Elsewhere its memory
/// still is, and filling all of it would take most of the time of the tests.
void note_tensor(void* memory, std::size_t bytes);

}  // namespace compact::cuda::emulation
