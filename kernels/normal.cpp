#include <cstdint>

#include "compact/core/philox.h"
#include "compact/kernels/elementwise.h"
#include "kernels/checks.h"
#include "kernels/normal_cpu.h"
#include "kernels/normal_cuda.h"

namespace compact {

void fill_normal(Context& context, const Tensor& x, float stddev, std::uint64_t seed, std::uint32_t id) {
  require(is_float(x), "fill_normal", "not a tensor of floats");
  require(x.contiguous(), "fill_normal", "not contiguous");
  require(id < 1u << 24, "fill_normal", "an id has 24 bits");
  // Row and block of four columns are one counter word each.
  require(x.rows() <= UINT32_MAX && x.cols() / 4 < UINT32_MAX, "fill_normal", "too large for the counter");
  const OpScope timed(context.clock, Op::Elementwise, bytes_of({x}));
  if (context.planning()) return;
  const std::uint32_t stream_id = stream_word(Stream::Init, id);
  if (context.on_cuda()) return cuda::normal_rows(*context.queue, x, 0, stddev, seed, 0, stream_id, false);
  by_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    COMPACT_CALL(normal_rows, x.as<T>(), x.ld, 0, x.rows(), x.cols(), stddev, seed, 0, stream_id);
  });
}

}  // namespace compact
