#include "compact/kernels/rope.h"

#include <cmath>

#include "compact/memory/host_access.h"
#include "kernels/checks.h"
#include "kernels/rope_cpu.h"
#include "kernels/rope_cuda.h"

namespace compact {

void rope_table(Context& context, double base, const Tensor& table) {
  const std::int64_t T = table.rows(), D = table.cols(), half = D / 2;
  require(table.dtype == DType::F32 && D % 2 == 0, "rope_table", "table must be [T, D] F32 with even D");
  require(table.contiguous(), "rope_table", "table must be contiguous");
  const OpScope timed(context.clock, Op::Rope, bytes_of({table}));
  if (context.planning()) return;
  // By the host for every device: the same bits everywhere.
  HostAccess access(context.queue);
  const Tensor host = access.begin_write(table);
#pragma omp parallel for schedule(static)
  for (std::int64_t t = 0; t < T; ++t)
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(D));
      const double angle = static_cast<double>(t) * frequency;
      host.f32()[t * D + i] = static_cast<float>(std::cos(angle));
      host.f32()[t * D + half + i] = static_cast<float>(std::sin(angle));
    }
  access.end_write(table);
}

void rope(Context& context, const Tensor& x, std::int64_t T, std::int64_t first_position, const Tensor& table,
          Rotation direction) {
  const std::int64_t D = table.cols();
  require(is_float(x) && table.dtype == DType::F32, "rope", "x must be F32 or BF16 and table F32");
  require(D > 0 && D % 2 == 0 && x.cols() % D == 0, "rope",
          "x must be whole heads of table.cols() even channels");
  require(T > 0 && first_position >= 0 && first_position + T <= table.rows(), "rope",
          "the table has too few positions");
  require(x.rows() % T == 0, "rope", "x must be [B*T, heads*D]");
  const OpScope timed(context.clock, Op::Rope, bytes_of({x, x, table.row_range(first_position, T)}));
  if (context.planning()) return;
  const float sign = direction == Rotation::Forward ? 1.0f : -1.0f;
  if (context.on_cuda()) return cuda::rope(*context.queue, x, T, first_position, table, sign);
  by_type(x.dtype, [&](auto type) {
    using E = decltype(type);
    COMPACT_CALL(rope, x.as<E>(), x.ld, x.rows(), x.cols() / D, D, T, first_position, table.f32(), table.ld,
                 sign);
  });
}

}  // namespace compact
