#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "compact/cuda/queue.h"
#include "cuda_target.h"  // of kernels/card for nvcc, of tests/cuda_emulation for the CPU

/// How kernels are written and launched. A `.cu` file is compiled by nvcc for the card and by g++ for the
/// tests, which run one fiber for each CUDA thread; both give it the same names through `cuda_target.h`:
///   COMPACT_SHARED(T, name, [a][b])  static shared memory, uninitialised (declared at the top of a kernel)
///   COMPACT_DYNAMIC_SHARED(name)     the launch's dynamic shared memory, unsigned char*, 128-byte aligned
///   load_vector<V>, store_vector     aligned vector accesses (V: uint4, float4, uint2, ...): checked there
///   __syncthreads, __syncwarp, __shfl_xor_sync, __ballot_sync, atomicAdd (int, unsigned), threadIdx,
///   blockIdx, blockDim, gridDim; others that CUDA has want a body in the emulation first fast_exp2(x) 2^x by
///   the special-function unit (2 units in the last place)
/// Tensor cores and asynchronous copies are in kernels/mma_cuda.h.
/// Rules: no thread leaves before a barrier or shuffle that others reach; all lanes of a warp take part in
/// shuffles, with the mask kAllLanes; every sum has an order that depends on sizes only; a multiply-add is
/// written out (fmaf), since the compilers may not contract; sizes and offsets are 64-bit.
namespace compact::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;
inline constexpr int kWarp = 32;

/// Where a kernel runs: `shared_bytes` of dynamic shared memory for each block.
struct Launch {
  std::string_view op;  ///< named by errors and profiles: a string literal
  dim3 grid, block;
  std::int64_t shared_bytes = 0;
};

/// Queues kernel<<<...>>>(args...). Parameters are scalars, pointers, Bf16-sized values and plain structs
/// without padding.
template <typename... Parameters, typename... Arguments>
void launch(Queue& queue, const Launch& where, void (*kernel)(Parameters...), Arguments&&... arguments) {
  // The bytes of everything that the launch depends on, for Queue::admit.
  std::array<std::byte, (std::size_t{0} + ... + sizeof(Parameters)) + 64> bytes{};
  std::size_t count = 0;
  const auto note = [&](const auto& value) {
    std::memcpy(bytes.data() + count, &value, sizeof(value));
    count += sizeof(value);
  };
  note(kernel);
  note(where.grid);
  note(where.block);
  note(where.shared_bytes);
  const auto run = [&](Parameters... values) {
    (note(values), ...);
    if (!queue.admit(bytes.data(), count)) return;
    target::run(where.op, kernel, where.grid, where.block, where.shared_bytes, queue.stream(), values...);
    queue.launched(where.op);
  };
  run(static_cast<Parameters>(arguments)...);
}

/// Blocks of `size` that cover `count`.
constexpr unsigned blocks_for(std::int64_t count, std::int64_t size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

}  // namespace compact::cuda
