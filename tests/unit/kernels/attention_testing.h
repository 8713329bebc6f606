#pragma once
#include <vector>

#include "compact/kernels/attention.h"
#include "unit/kernels/op_testing.h"

/// One attention for tests, and the same by plain loops.
namespace compact::testing {

/// The emulation fills memory with poison, and small cases are many.
inline std::int64_t small_capacity() { return on_cuda() ? std::int64_t{6} << 20 : Bench::usual_capacity(); }

/// Columns beside a strided view. 8 leave rows of BF16 whose width is a multiple of 8 aligned to 16 bytes, as
/// tensor cores want it; with 3 they are not.
inline constexpr std::int64_t kOdd = 3, kAligned = 8;

/// Everything of one case, with q, k, v side by side as a fused product leaves them (views with a row
/// stride).
struct AttentionCase {
  AttentionCase(Bench& bench, const AttentionShape& shape, DType type = DType::F32,
                std::int64_t padding_ = kOdd)
      : s(shape), padding(padding_) {
    const std::int64_t C = s.H * s.D, K = s.Hkv * s.D;
    q = bench.strided({s.B * s.T, C}, padding, type);
    const Tensor kv = bench.make({s.B * s.Tkv, 2 * K}, type), dkv = bench.make({s.B * s.Tkv, 2 * K}, type);
    k = kv.columns(0, K), v = kv.columns(K, K);
    out = bench.strided({s.B * s.T, C}, padding, type);
    lse = bench.make({s.B, s.H, s.T});
    dout = bench.strided({s.B * s.T, C}, padding, type);
    dq = bench.strided({s.B * s.T, C}, padding, type);
    dk = dkv.columns(0, K), dv = dkv.columns(K, K);
    bench.randomize(q, 1);
    bench.randomize(k, 2);
    bench.randomize(v, 3);
    bench.randomize(dout, 4);
  }
  void forward(Context& context) const { attention_forward(context, s, q, k, v, out, lse); }
  void backward(Context& context) const {
    attention_backward(context, s, q, k, v, out, lse, dout, dq, dk, dv);
  }
  std::vector<float> results(bool gradients) const {
    std::vector<float> all = values(out);
    for (float x : values(lse)) all.push_back(x);
    if (gradients)
      for (const Tensor& t : {dq, dk, dv})
        for (float x : values(t)) all.push_back(x);
    return all;
  }

  AttentionShape s;
  std::int64_t padding;
  Tensor q, k, v, out, lse, dout, dq, dk, dv;
};

inline double at(const Tensor& t, std::int64_t row, std::int64_t column) {
  const std::int64_t i = row * t.ld + column;
  return static_cast<double>(t.dtype == DType::BF16 ? to_float(t.as<Bf16>()[i]) : t.f32()[i]);
}

struct PlainAttention {
  std::vector<double> out, lse, dq, dk, dv;
};

/// Query by query in double.
inline PlainAttention plain_attention(const AttentionCase& c) {
  const AttentionShape& s = c.s;
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  PlainAttention p;
  p.out.resize(size(c.q.elements()));
  p.dq.resize(size(c.q.elements()));
  p.dk.resize(size(c.k.elements()));
  p.dv.resize(size(c.k.elements()));
  p.lse.resize(size(s.B * s.H * s.T));
  const double scale = 1 / std::sqrt(static_cast<double>(s.D));
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h)
      for (std::int64_t t = 0; t < s.T; ++t) {
        const std::int64_t row = b * s.T + t, head = h * s.D, kv = h / (s.H / s.Hkv) * s.D,
                           keys = s.Tkv - s.T + t + 1;
        std::vector<double> weight(size(keys)), slope(size(keys));
        double top = -1e300, sum = 0, mean = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < s.D; ++d)
            score += at(c.q, row, head + d) * at(c.k, b * s.Tkv + j, kv + d) * scale;
          weight[size(j)] = score;
          top = std::max(top, score);
        }
        for (double& w : weight) sum += w = std::exp(w - top);
        p.lse[size((b * s.H + h) * s.T + t)] = top + std::log(sum);
        for (std::int64_t j = 0; j < keys; ++j) {
          weight[size(j)] /= sum;
          for (std::int64_t d = 0; d < s.D; ++d) {
            const double v = at(c.v, b * s.Tkv + j, kv + d), dout = at(c.dout, row, head + d);
            p.out[size(row * s.H * s.D + head + d)] += weight[size(j)] * v;
            p.dv[size((b * s.Tkv + j) * s.Hkv * s.D + kv + d)] += weight[size(j)] * dout;
            slope[size(j)] += v * dout;
          }
          mean += weight[size(j)] * slope[size(j)];
        }
        for (std::int64_t j = 0; j < keys; ++j)
          for (std::int64_t d = 0; d < s.D; ++d) {
            const double ds = weight[size(j)] * (slope[size(j)] - mean) * scale;
            p.dq[size(row * s.H * s.D + head + d)] += ds * at(c.k, b * s.Tkv + j, kv + d);
            p.dk[size((b * s.Tkv + j) * s.Hkv * s.D + kv + d)] += ds * at(c.q, row, head + d);
          }
      }
  return p;
}

}  // namespace compact::testing
