#pragma once
#include <cstddef>
#include <cstdint>

/// What a block has besides global memory: shared memory, uninitialised when a block starts and with guards
/// around it, and copies that are on their way into it.
namespace compact::cuda::emulation {

inline constexpr std::size_t kGuardBytes = 128;
/// NaN as a float of either size, and an index that is out of range.
inline constexpr unsigned char kPoison = 0xFF;

/// The number of the running block among all of the program.
extern std::uint64_t block_serial;

/// Called by the scheduler, before a block and after it; the latter calls `fail` where a guard was written.
void start_block_memory(std::int64_t dynamic_bytes);
void check_block_memory();
/// The present thread has ended.
void check_copies();

/// Guards, `bytes` of memory between them from `before` + kGuardBytes on.
void enter_shared(unsigned char* before, std::size_t bytes);
unsigned char* dynamic_shared();

/// A static shared array with its guards. The first thread of a block that comes by poisons it.
template <typename T>
class Shared {
 public:
  T& enter() {
    if (serial_ != block_serial) {
      serial_ = block_serial;
      enter_shared(before_, sizeof(T));
    }
    return value_;
  }

 private:
  alignas(128) unsigned char before_[kGuardBytes];
  alignas(128) T value_;
  unsigned char after_[kGuardBytes];  // from the end of value_ on: no padding, since a char needs none
  std::uint64_t serial_ = 0;
};

void misaligned(std::size_t bytes);
inline void require_aligned(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) misaligned(bytes);
}

/// An asynchronous copy of 16 bytes by the present thread, made when it is waited for; until then `to` is
/// poisoned. Zeros where `valid` is false.
void copy_later(void* to, const void* from, bool valid);
void commit_copies();
void wait_for_copies(int groups);

}  // namespace compact::cuda::emulation
