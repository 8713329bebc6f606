#include "compact/core/error.h"
#include "kernels/adam_cuda.h"
#include "kernels/attention_cuda.h"
#include "kernels/cross_entropy_cuda.h"
#include "kernels/elementwise_cuda.h"
#include "kernels/embedding_cuda.h"
#include "kernels/gemm_cuda.h"
#include "kernels/global_norm_cuda.h"
#include "kernels/hadamard_cuda.h"
#include "kernels/normal_cuda.h"
#include "kernels/projection_cuda.h"
#include "kernels/rmsnorm_cuda.h"
#include "kernels/rope_cuda.h"
#include "kernels/sparse_cuda.h"
#include "kernels/swiglu_cuda.h"
#include "kernels/update_gate_cuda.h"

/// The CUDA ops of a build without CUDA. Nothing reaches them: no Queue can be made (src/cuda/no_cuda.cpp).
namespace compact::cuda {

namespace {
[[noreturn]] void absent() { bug("a CUDA op in a build without CUDA"); }
}  // namespace

using T = Tensor;

void fill(Queue&, const T&, float) { absent(); }
void copy(Queue&, const T&, const T&) { absent(); }
void add(Queue&, const T&, const T&, const T&) { absent(); }
void scale(Queue&, const T&, float) { absent(); }
void normal_rows(Queue&, const T&, std::int64_t, float, std::uint64_t, std::uint32_t, std::uint32_t, bool) {
  absent();
}
void rmsnorm_forward(Queue&, const T&, const T&, const T&, const T&, float, const T&, const T&) { absent(); }
void rmsnorm_backward(Queue&, const T&, const T&, const T&, const T&, const T&, const T&, const T&) {
  absent();
}
void rope(Queue&, const T&, std::int64_t, std::int64_t, const T&, float) { absent(); }
void swiglu_forward(Queue&, const T&, const T&, const T&) { absent(); }
void swiglu_backward(Queue&, const T&, const T&, const T&, const T&, const T&) { absent(); }
void embedding_forward(Queue&, const T&, const T&, const T&) { absent(); }
void embedding_backward(Queue&, const T&, const T&, const T&, const T&) { absent(); }
void cross_entropy(Queue&, const T&, const T&, bool, float, const T&) { absent(); }
void global_norm(Queue&, std::span<const T>, const T&, const T&) { absent(); }
void add_sum(Queue&, const T&, const T&, const T&) { absent(); }
void open_gate(Queue&, const T&, const T&) { absent(); }
void update_gate(Queue&, const T&, const T&, double, const T&, const T&) { absent(); }
void attention_forward(Queue&, const AttentionShape&, const T&, const T&, const T&, const T&, const T&) {
  absent();
}
void attention_backward(Queue&, const AttentionShape&, const T&, const T&, const T&, const T&, const T&,
                        const T&, const T&, const T&, const T&, const T&) {
  absent();
}
void adamw(Queue&, const AdamStep&, const Rounding&, const T&, const T&, const T&, const T&, const T&) {
  absent();
}
void adam_direction(Queue&, const AdamStep&, const Rounding&, const T&, const T&, const T&) { absent(); }
void gemm(Queue&, const T&, Transpose, const T&, Transpose, const T&, bool, const T&) { absent(); }
std::int64_t products_known(Queue&) { absent(); }
void project(Queue&, const Projection&, const T&, const T&) { absent(); }
void expand_add(Queue&, const Projection&, const T&, const T&, float, const Rounding&, const float*,
                std::int64_t, const T&, const T&) {
  absent();
}
void hadamard_draw(Queue&, const Projection&, const T&) { absent(); }
void hadamard_rows(Queue&, const Projection&, const T&, std::int64_t, const T&) { absent(); }
void hadamard_project(Queue&, const Projection&, const T&, const T&, const T&) { absent(); }
void hadamard_expand(Queue&, const Projection&, const T&, const T&, float, const Rounding&, const float*,
                     const T&) {
  absent();
}
void sparse_rows(Queue&, const Projection&, std::int64_t, const T&) { absent(); }
void sparse_project(Queue&, const Projection&, const T&, const T&, const T&) { absent(); }
void sparse_expand(Queue&, const Projection&, const T&, float, const Rounding&, const float*, const T&) {
  absent();
}

}  // namespace compact::cuda
