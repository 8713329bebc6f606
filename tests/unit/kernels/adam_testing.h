#pragma once
#include <cmath>
#include <vector>

#include "compact/core/philox.h"
#include "compact/kernels/adam.h"
#include "unit/kernels/op_testing.h"

/// What tests of Adam in other types than fp32 share.
namespace compact::testing::adam {

/// Room for a few small tensors: the emulated device fills all of it with poison.
struct Bench : testing::Bench {
  explicit Bench(Device device = testing::test_device()) : testing::Bench(device, std::int64_t{8} << 20) {}
};
inline constexpr DType kTypes[] = {DType::F32, DType::BF16};
// Tails of the 64 random words made together, more than a thread takes at once, enough for several threads.
inline const std::vector<Shape> kShapes = {{1},     {7},     {130},     {1, 1},    {3, 5},
                                           {5, 64}, {4, 67}, {3, 2113}, {130, 257}};

inline AdamStep some_step(std::int64_t t = 3) {
  AdamStep step = adam_step(0.9, 0.999, 1e-6, t);
  step.lr = 0.01f;
  step.decay = 0.001f;
  step.gradient_scale = 0.7f;
  return step;
}

/// The random word of element (i, j), from the counter of compact/kernels/rounding.h.
inline std::uint32_t word_of(const Rounding& r, std::int64_t i, std::int64_t j) {
  return philox({static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(i), r.step,
                 stream_word(Stream::Rounding, r.id)},
                r.seed)[static_cast<std::size_t>(j % 4)];
}

enum class How { Exact, Nearest, Lower, Upper };

/// Values of `exact` as a tensor of type `dtype` holds them: rounded to nearest, or by the lower or upper
/// half of the random words.
inline std::vector<float> rounded(const Tensor& exact, DType dtype, How how, const Rounding& r) {
  std::vector<float> out = values(exact);
  if (dtype == DType::F32) return out;
  for (std::size_t at = 0; at < out.size(); ++at) {
    const std::int64_t i = static_cast<std::int64_t>(at) / exact.cols();
    const std::uint32_t word = word_of(r, i, static_cast<std::int64_t>(at) % exact.cols());
    out[at] = to_float(how == How::Nearest ? nearest_bf16(out[at])
                                           : stochastic_bf16(out[at], how == How::Lower ? word : word >> 16));
  }
  return out;
}

struct Operands {
  Tensor w, g, m, v;
};

/// Random values that bf16 has, so that operands of any types hold the same.
inline Operands operands(Bench& bench, Shape shape, DType w, DType g, DType states) {
  const auto exact = [&](std::uint32_t seed, float scale) {
    return bench.as(bench.random(shape, seed, scale), DType::BF16);
  };
  const Tensor v = exact(4, 0.1f);
  for (std::int64_t i = 0; i < v.elements(); ++i) {
    Bf16& x = v.as<Bf16>()[i];
    put(x, std::abs(to_float(x)));
  }
  return {bench.as(exact(1, 1), w), bench.as(exact(2, 0.5f), g), bench.as(exact(3, 0.1f), states),
          bench.as(v, states)};
}

}  // namespace compact::testing::adam
