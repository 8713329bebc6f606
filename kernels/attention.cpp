#include "compact/kernels/attention.h"

#include <omp.h>

#include <type_traits>

#include "kernels/attention_cpu.h"
#include "kernels/attention_cuda.h"
#include "kernels/checks.h"

namespace compact {

namespace {

void check_attention(const char* op, const AttentionShape& s, const Tensor& q, const Tensor& k,
                     const Tensor& v, const Tensor& out, const Tensor& lse) {
  require(s.B >= 0 && s.T > 0 && s.D > 0 && s.Tkv >= s.T, op, "needs B >= 0, T > 0, D > 0 and Tkv >= T");
  require(s.Hkv > 0 && s.H > 0 && s.H % s.Hkv == 0, op, "H must be a multiple of Hkv");
  require(is_float(q) && is_float(k) && is_float(v) && is_float(out), op,
          "q, k, v and out must be F32 or BF16");
  require(k.dtype == q.dtype && v.dtype == q.dtype && out.dtype == q.dtype, op,
          "q, k, v and out must be of one type");
  require(is_matrix(q, s.B * s.T, s.H * s.D), op, "q must be [B*T, H*D]");
  require(is_matrix(k, s.B * s.Tkv, s.Hkv * s.D), op, "k must be [B*Tkv, Hkv*D]");
  require(is_matrix(v, s.B * s.Tkv, s.Hkv * s.D), op, "v must be [B*Tkv, Hkv*D]");
  require(is_matrix(out, s.B * s.T, s.H * s.D), op, "out must be [B*T, H*D]");
  require(lse.dtype == DType::F32 && lse.contiguous() && lse.elements() == s.B * s.H * s.T, op,
          "lse must be [B, H, T] F32");
}

/// The CUDA kernels keep whole rows of a head in shared memory.
void check_cuda(const AttentionShape& s) {
  if (s.D > cuda::kMostHeadWidth)
    input_error("attention on device \"cuda\" takes heads of up to {} numbers, found {}; take more heads",
                cuda::kMostHeadWidth, s.D);
}

/// Pairs of a query and a key it sees, over all heads and sequences.
std::int64_t visible_pairs(const AttentionShape& s) {
  return s.B * s.H * (s.T * (s.Tkv - s.T) + s.T * (s.T + 1) / 2);
}

template <typename Element>
cpu::AttentionCall<Element> make_call(const AttentionShape& s, const Tensor& q, const Tensor& k,
                                      const Tensor& v, const Tensor& out, const Tensor& lse,
                                      const Tensor& tiles) {
  cpu::AttentionCall<Element> call{};
  call.B = s.B, call.T = s.T, call.Tkv = s.Tkv, call.H = s.H, call.Hkv = s.Hkv, call.D = s.D;
  call.q = q.as<Element>(), call.ldq = q.ld;
  call.k = k.as<Element>(), call.ldk = k.ld;
  call.v = v.as<Element>(), call.ldv = v.ld;
  call.out = out.as<Element>(), call.ldo = out.ld;
  call.lse = lse.f32();
  call.tiles = tiles.f32(), call.thread_floats = tiles.cols();
  return call;
}

}  // namespace

void attention_forward(Context& context, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& out, const Tensor& lse) {
  check_attention("attention_forward", shape, q, k, v, out, lse);
  const OpScope timed(context.clock, Op::Attention, bytes_of({q, k, v, out, lse}));
  // Two products, q kᵀ and p v.
  context.flops.attention += 4 * shape.D * visible_pairs(shape);
  if (context.on_cuda()) {
    check_cuda(shape);
    if (context.planning()) return;
    return cuda::attention_forward(*context.queue, shape, q, k, v, out, lse);
  }
  const ScratchScope scope(context.arena);
  const Tensor tiles = context.arena.scratch(
      "attention tiles", {omp_get_max_threads(), cpu::attention_forward_floats(shape.D)}, DType::F32);
  if (context.planning()) return;
  if (q.dtype == DType::F32)
    COMPACT_CALL(attention_forward, make_call<float>(shape, q, k, v, out, lse, tiles));
  else if (has_bf16_products())
    cpu::avx512::attention_forward_bf16(make_call<Bf16>(shape, q, k, v, out, lse, tiles));
  else
    COMPACT_CALL(attention_forward, make_call<Bf16>(shape, q, k, v, out, lse, tiles));
}

void attention_backward(Context& context, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  const char* op = "attention_backward";
  check_attention(op, shape, q, k, v, out, lse);
  require(shape.Tkv == shape.T, op, "needs Tkv = T");
  require(dout.dtype == q.dtype && dq.dtype == q.dtype && dk.dtype == q.dtype && dv.dtype == q.dtype, op,
          "gradients must be of the type of q");
  require(is_matrix(dout, q.rows(), q.cols()) && is_matrix(dq, q.rows(), q.cols()), op,
          "dout and dq must be [B*T, H*D]");
  require(is_matrix(dk, k.rows(), k.cols()) && is_matrix(dv, k.rows(), k.cols()), op,
          "dk and dv must be [B*T, Hkv*D]");
  const OpScope timed(context.clock, Op::Attention, bytes_of({q, k, v, out, lse, dout, dq, dk, dv}));
  // Four products; the scores that are made again are not counted.
  context.flops.attention += 8 * shape.D * visible_pairs(shape);
  const ScratchScope scope(context.arena);
  if (context.on_cuda()) {
    check_cuda(shape);
    const Tensor delta = context.arena.scratch("attention delta", {shape.B, shape.H, shape.T}, DType::F32);
    if (context.planning()) return;
    return cuda::attention_backward(*context.queue, shape, q, k, v, out, lse, dout, delta, dq, dk, dv);
  }
  const bool sums = q.dtype != DType::F32 && shape.T > cpu::kKeyBlock;
  const Tensor tiles = context.arena.scratch(
      "attention tiles",
      {omp_get_max_threads(), cpu::attention_backward_floats(shape.T, shape.D, shape.H / shape.Hkv, sums)},
      DType::F32);
  if (context.planning()) return;
  by_type(q.dtype, [&](auto zero) {
    using Element = decltype(zero);
    cpu::AttentionCall<Element> call = make_call<Element>(shape, q, k, v, out, lse, tiles);
    call.dout = dout.as<Element>(), call.lddout = dout.ld;
    call.dq = dq.as<Element>(), call.lddq = dq.ld;
    call.dk = dk.as<Element>(), call.lddk = dk.ld;
    call.dv = dv.as<Element>(), call.lddv = dv.ld;
    if constexpr (std::is_same_v<Element, Bf16>)
      if (has_bf16_products()) return cpu::avx512::attention_backward_bf16(call);
    COMPACT_CALL(attention_backward, call);
  });
}

}  // namespace compact
