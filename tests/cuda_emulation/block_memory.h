#pragma once
#include <cstddef>
#include <cstdint>

/// What a block has besides global memory: shared memory, uninitialised when a block starts and with guards
/// around it, and copies that are on their way into it. All of it is of the host's thread that runs the
/// block.
namespace compact::cuda::emulation {

inline constexpr std::size_t kGuardBytes = 128;
/// NaN as a float of either size, and an index that is out of range.
inline constexpr unsigned char kPoison = 0xFF;

/// The number of the running block among all of its thread of the host.
extern constinit thread_local std::uint64_t block_serial;

/// Called by the scheduler, before a block and after it; the latter calls `fail` where a guard was written.
void start_block_memory(std::int64_t dynamic_bytes);
void check_block_memory();
/// The present thread has ended.
void check_copies();

/// The next `bytes` of the block's static shared memory, poisoned, with guards around them.
unsigned char* enter_shared(std::size_t bytes);
unsigned char* dynamic_shared();

/// Where a static shared array lies. The first thread of a block that comes by finds a place for it.
template <typename T>
class Shared {
 public:
  T& enter() {
    static_assert(alignof(T) <= kGuardBytes);
    if (serial_ != block_serial) {
      serial_ = block_serial;
      place_ = reinterpret_cast<T*>(enter_shared(sizeof(T)));
    }
    return *place_;
  }

 private:
  T* place_ = nullptr;
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
