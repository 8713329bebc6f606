#include "compact/kernels/embedding.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/embedding_cpu.h"

namespace compact {

namespace {
void require_ids(const Tensor& ids, std::int64_t V, const char* op) {
  const std::int32_t *begin = ids.i32(), *end = begin + ids.elements();
  require(std::all_of(begin, end, [V](std::int32_t id) { return id >= 0 && id < V; }), op,
          "an id is not a row of the table");
}
}  // namespace

void embedding_forward(Context& context, const Tensor& ids, const Tensor& table, const Tensor& out) {
  const std::int64_t N = ids.elements(), C = table.cols();
  require(ids.dtype == DType::I32 && ids.contiguous(), "embedding_forward", "ids must be I32 and contiguous");
  require(is_float(table) && out.dtype == table.dtype, "embedding_forward",
          "table and out must be F32 or BF16, both the same");
  require(is_matrix(out, N, C), "embedding_forward", "out must be [N, C]");
  require_computable(context, "embedding_forward", {table, out});
  if (context.planning()) return;
  require_ids(ids, table.rows(), "embedding_forward");
  COMPACT_CALL(embedding_forward, ids.i32(), table.f32(), table.ld, out.f32(), out.ld, N, C);
}

void embedding_backward(Context& context, const Tensor& ids, const Tensor& dout, const Tensor& dtable) {
  const std::int64_t N = ids.elements(), C = dtable.cols();
  require(ids.dtype == DType::I32 && ids.contiguous(), "embedding_backward",
          "ids must be I32 and contiguous");
  require(is_float(dout) && is_float(dtable), "embedding_backward", "dout and dtable must be F32 or BF16");
  require(is_matrix(dout, N, C), "embedding_backward", "dout must be [N, C]");
  require_computable(context, "embedding_backward", {dout, dtable});
  if (context.planning()) return;
  require_ids(ids, dtable.rows(), "embedding_backward");
  COMPACT_CALL(embedding_backward, ids.i32(), dout.f32(), dout.ld, dtable.f32(), dtable.ld, N, C);
}

}  // namespace compact
