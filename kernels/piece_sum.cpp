#include "compact/kernels/piece_sum.h"

#include <vector>

#include "kernels/checks.h"
#include "kernels/piece_sum_cpu.h"

namespace compact {

namespace {
template <typename T>
void sum_as(std::span<const Tensor> pieces, const Tensor& out) {
  std::vector<const T*> data;
  for (const Tensor& piece : pieces) data.push_back(piece.as<T>());
  COMPACT_CALL(sum_pieces, data.data(), static_cast<std::int64_t>(data.size()), out.as<T>(), out.elements());
}
}  // namespace

void sum_pieces(std::span<const Tensor> pieces, const Tensor& out) {
  require(!pieces.empty(), "sum_pieces", "no piece");
  for (const Tensor& piece : pieces)
    require(piece.dtype == out.dtype && piece.elements() == out.elements() && piece.contiguous(),
            "sum_pieces", "pieces must be contiguous, of one size and type");
  require(out.contiguous(), "sum_pieces", "out must be contiguous");
  if (out.dtype == DType::F64) return sum_as<double>(pieces, out);
  require(is_float(out), "sum_pieces", "the elements must be F32, BF16 or F64");
  by_type(out.dtype, [&](auto type) { sum_as<decltype(type)>(pieces, out); });
}

}  // namespace compact
