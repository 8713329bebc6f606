#include "compact/kernels/embedding.h"

#include <algorithm>
#include <cstdint>

#include "kernels/checks.h"
#include "kernels/embedding_cpu.h"
#include "kernels/embedding_cuda.h"

namespace compact {

namespace {
void require_ids(const Tensor& ids, std::int64_t V, const char* op) {
  const std::int32_t *begin = ids.i32(), *end = begin + ids.elements();
  require(std::all_of(begin, end, [V](std::int32_t id) { return id >= 0 && id < V; }), op,
          "an id is not a row of the table");
}

/// first [V]: the first token of each id; next [N]: the next one of the same id. -1 where there is none.
void chain_tokens(const Tensor& ids, const Tensor& first, const Tensor& next) {
  std::fill_n(first.i32(), first.elements(), -1);
  for (std::int64_t n = ids.elements() - 1; n >= 0; --n) {
    std::int32_t& head = first.i32()[ids.i32()[n]];
    next.i32()[n] = head;
    head = static_cast<std::int32_t>(n);
  }
}
}  // namespace

void embedding_forward(Context& context, const Tensor& ids, const Tensor& table, const Tensor& out) {
  const std::int64_t N = ids.elements(), C = table.cols();
  require(ids.dtype == DType::I32 && ids.contiguous(), "embedding_forward", "ids must be I32 and contiguous");
  require(is_float(table) && out.dtype == table.dtype, "embedding_forward",
          "table and out must be F32 or BF16, both the same");
  require(is_matrix(out, N, C), "embedding_forward", "out must be [N, C]");
  // A named row is read and written.
  const OpScope timed(context.clock, Op::Embedding, bytes_of({ids, out, out}));
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::embedding_forward(*context.queue, ids, table, out);
  require_ids(ids, table.rows(), "embedding_forward");
  by_type(out.dtype, [&](auto type) {
    using T = decltype(type);
    COMPACT_CALL(embedding_forward, ids.i32(), table.as<T>(), table.ld, out.as<T>(), out.ld, N, C);
  });
}

void embedding_backward(Context& context, const Tensor& ids, const Tensor& dout, const Tensor& dtable) {
  const std::int64_t N = ids.elements(), C = dtable.cols();
  require(ids.dtype == DType::I32 && ids.contiguous(), "embedding_backward",
          "ids must be I32 and contiguous");
  require(is_float(dout) && is_float(dtable), "embedding_backward", "dout and dtable must be F32 or BF16");
  require(is_matrix(dout, N, C), "embedding_backward", "dout must be [N, C]");
  require(N <= INT32_MAX, "embedding_backward", "too many tokens");
  const std::int64_t V = dtable.rows(), rows = std::min(N, V);  // at most: ids may repeat
  const OpScope timed(context.clock, Op::Embedding,
                      bytes_of({ids, dout}) + 2 * rows * C * size_of(dtable.dtype));
  const ScratchScope scope(context.arena);
  Tensor order, first, next;
  if (context.on_cuda()) {
    order = context.arena.scratch("tokens sorted by id", {N}, DType::I32);
  } else if (dtable.dtype == DType::BF16) {
    first = context.arena.scratch("first token of each id", {V}, DType::I32);
    next = context.arena.scratch("next token of the same id", {N}, DType::I32);
  }
  if (context.planning()) return;
  if (context.on_cuda()) return cuda::embedding_backward(*context.queue, ids, dout, order, dtable);
  require_ids(ids, V, "embedding_backward");
  if (dtable.dtype == DType::BF16) chain_tokens(ids, first, next);
  by_type(dout.dtype, [&](auto type) {
    using T = decltype(type);
    if (dtable.dtype == DType::BF16)
      COMPACT_CALL(embedding_backward_once, ids.i32(), first.i32(), next.i32(), dout.as<T>(), dout.ld,
                   dtable.as<Bf16>(), dtable.ld, N, C);
    else
      COMPACT_CALL(embedding_backward, ids.i32(), dout.as<T>(), dout.ld, dtable.f32(), dtable.ld, N, C);
  });
}

}  // namespace compact
