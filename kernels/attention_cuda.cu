#include "kernels/attention_cuda.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "kernels/attention_call_cuda.h"
#include "kernels/by_type.h"

namespace compact::cuda {

namespace {

using attention::Call;

/// Keys and values of the heads whose blocks run side by side, to stay in an L2 cache of tens of MiB.
constexpr std::int64_t kHeadBytes = std::int64_t{8} << 20;

template <typename T>
Call<T> make_call(const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v,
                  const Tensor& out, const Tensor& lse) {
  Call<T> call{};
  call.q = q.as<T>(), call.ldq = q.ld;
  call.k = k.as<T>(), call.ldk = k.ld;
  call.v = v.as<T>(), call.ldv = v.ld;
  call.out = out.as<T>(), call.ldout = out.ld;
  call.lse = lse.f32();
  call.Tq = s.T, call.Tkv = s.Tkv;
  call.B = static_cast<std::uint32_t>(s.B), call.H = static_cast<std::uint32_t>(s.H);
  call.Hkv = static_cast<std::uint32_t>(s.Hkv), call.D = static_cast<std::uint32_t>(s.D);
  call.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.D)));
  call.scale_log2 = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(s.D)));
  const std::int64_t head = 2 * s.Tkv * s.D * static_cast<std::int64_t>(sizeof(T));
  call.at_once = static_cast<std::uint32_t>(std::clamp<std::int64_t>(kHeadBytes / head, 1, s.B * s.H));
  return call;
}

/// Rows in pieces of 16 bytes, and a head no wider than the registers of a warp hold.
bool takes_tensor_cores(const AttentionShape& s, std::initializer_list<Tensor> views) {
  return s.D <= 128 && s.D % 8 == 0 && std::ranges::all_of(views, [](const Tensor& t) {
           return t.dtype == DType::BF16 && t.ld % 8 == 0 &&
                  reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
         });
}

}  // namespace

void attention_forward(Queue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& out, const Tensor& lse) {
  if (shape.B == 0) return;
  if (takes_tensor_cores(shape, {q, k, v, out}))
    return attention::forward_bf16(queue, make_call<Bf16>(shape, q, k, v, out, lse));
  by_type(q.dtype, [&](auto type) {
    attention::forward_plain(queue, make_call<decltype(type)>(shape, q, k, v, out, lse));
  });
}

void attention_backward(Queue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const Tensor& delta, const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  if (shape.B == 0) return;
  by_type(q.dtype, [&](auto type) {
    using T = decltype(type);
    Call<T> call = make_call<T>(shape, q, k, v, out, lse);
    call.dout = dout.as<T>(), call.lddout = dout.ld;
    call.dq = dq.as<T>(), call.lddq = dq.ld;
    call.dk = dk.as<T>(), call.lddk = dk.ld;
    call.dv = dv.as<T>(), call.lddv = dv.ld;
    call.delta = delta.f32();
    if constexpr (sizeof(T) == sizeof(Bf16))
      if (takes_tensor_cores(shape, {q, k, v, out, dout, dq, dk, dv}))
        return attention::backward_bf16(queue, call);
    attention::backward_plain(queue, call);
  });
}

}  // namespace compact::cuda
