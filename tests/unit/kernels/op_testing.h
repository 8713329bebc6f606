#pragma once
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "compact/core/bf16.h"
#include "compact/core/error.h"
#include "compact/memory/context.h"
#include "cuda_emulation/fiber_order.h"
#include "test_device.h"

/// What tests of ops share: a place for tensors, random numbers, comparisons, the numeric cases.
namespace compact::testing {

/// An arena with its context. All memory of a test comes from here; on Device::Plan tensors have no data.
struct Bench {
  /// The emulation fills memory with poison, so there is less of it.
  static std::int64_t usual_capacity() { return std::int64_t{on_cuda() ? 96 : 256} << 20; }
  explicit Bench(Device device = test_device(), std::int64_t capacity = usual_capacity())
      : queue(device == Device::Cuda ? test_queue() : nullptr),
        arena(device, device == Device::Plan ? Arena::kUnlimited : capacity,
              device == Device::Plan ? test_device() : device) {}
  ~Bench() {
    for (const Tensor& guard : guards)
      for (std::int64_t i = 0; i < guard.elements(); ++i)
        EXPECT_EQ(guard.i32()[i], kGuard) << "a write outside of a tensor";
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  /// Filled with NaN, so that an element which an op forgets shows. On a CUDA device guards lie between
  /// tensors.
  Tensor make(Shape shape, DType dtype = DType::F32) {
    Tensor t = arena.persistent("test", shape, dtype, Category::Weights);
    if (t.data != nullptr) std::memset(t.data, 0xff, static_cast<std::size_t>(t.bytes()));
    if (arena.target() == Device::Cuda) {
      const Tensor guard = arena.persistent("guard", {64}, DType::I32, Category::Weights);
      if (guard.data != nullptr) {
        std::fill_n(guard.i32(), guard.elements(), kGuard);
        guards.push_back(guard);
      }
    }
    return t;
  }

  /// Normal deviates times `scale`, a function of the seed alone (in BF16 the same ones, rounded).
  Tensor random(Shape shape, std::uint32_t seed, float scale = 1, DType dtype = DType::F32) {
    Tensor t = make(shape, dtype);
    randomize(t, seed, scale);
    return t;
  }

  static void randomize(const Tensor& t, std::uint32_t seed, float scale = 1) {
    if (t.data == nullptr) return;
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < t.rows(); ++i)
      for (std::int64_t j = 0; j < t.cols(); ++j) set(t, i * t.ld + j, scale * normal(generator));
  }

  static void set(const Tensor& t, std::int64_t at, float value) {
    if (t.dtype == DType::BF16)
      put(t.as<Bf16>()[at], value);
    else
      t.f32()[at] = value;
  }

  /// A view [rows, cols] into a wider tensor, `padding` columns on each side holding NaN.
  Tensor strided(Shape shape, std::int64_t padding, DType dtype = DType::F32) {
    const std::int64_t cols = shape.last(), rows = cols == 0 ? 0 : shape.elements() / cols;
    return make({rows, cols + 2 * padding}, dtype).columns(padding, cols);
  }

  template <typename Values>
  Tensor of(Shape shape, const Values& values) {
    Tensor t = make(shape);
    for (std::size_t i = 0; i < values.size(); ++i) t.f32()[i] = static_cast<float>(values[i]);
    return t;
  }

  /// The same values as a contiguous tensor of another type, rounded to nearest.
  Tensor as(const Tensor& from, DType dtype) {
    Tensor t = make(from.shape, dtype);
    for (std::int64_t i = 0; i < from.rows(); ++i)
      for (std::int64_t j = 0; j < from.cols(); ++j)
        set(t, i * t.ld + j,
            from.dtype == DType::BF16 ? to_float(from.as<Bf16>()[i * from.ld + j])
                                      : from.f32()[i * from.ld + j]);
    return t;
  }

  Tensor ids(const std::vector<std::int32_t>& values) {
    Tensor t = make({static_cast<std::int64_t>(values.size())}, DType::I32);
    if (t.data != nullptr) std::memcpy(t.data, values.data(), values.size() * sizeof(std::int32_t));
    return t;
  }

  static constexpr std::int32_t kGuard = 0x5AA5A55A;
  cuda::Queue* queue;
  Arena arena;
  Context context{arena, queue};
  std::vector<Tensor> guards;
};

/// All elements in row-major order (F32 or BF16, whose values a float holds exactly).
inline std::vector<float> values(const Tensor& t) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < t.rows(); ++i)
    for (std::int64_t j = 0; j < t.cols(); ++j)
      out.push_back(t.dtype == DType::BF16 ? to_float(t.as<Bf16>()[i * t.ld + j]) : t.f32()[i * t.ld + j]);
  return out;
}

/// Writes `from` (row-major) into the view.
inline void set_values(const Tensor& t, const std::vector<float>& from) {
  ASSERT_EQ(static_cast<std::int64_t>(from.size()), t.elements());
  for (std::int64_t i = 0; i < t.elements(); ++i)
    Bench::set(t, i / t.cols() * t.ld + i % t.cols(), from[static_cast<std::size_t>(i)]);
}

/// The columns beside a view from Bench::strided still hold their NaN.
inline void expect_padding_untouched(const Tensor& t, std::int64_t padding) {
  for (std::int64_t i = 0; i < t.rows(); ++i)
    for (std::int64_t j = 1; j <= padding; ++j) {
      const std::int64_t size = size_of(t.dtype);
      const auto* bytes = t.as<const unsigned char>();
      std::uint32_t before = 0xffffffffu, after = 0xffffffffu;
      std::memcpy(&before, bytes + (i * t.ld - j) * size, static_cast<std::size_t>(size));
      std::memcpy(&after, bytes + (i * t.ld + t.cols() + j - 1) * size, static_cast<std::size_t>(size));
      ASSERT_EQ(before, 0xffffffffu) << "row " << i << ", " << j << " before it";
      ASSERT_EQ(after, 0xffffffffu) << "row " << i << ", " << j << " behind it";
    }
}

/// Equal to the bit (so NaN equals the same NaN, and 0 is not -0).
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// The rule of the numeric cases: |got - want| <= t (|want| + largest |want| of its row) + absolute.
/// `row` is the length of a row.
inline void expect_close(const std::vector<float>& got, const std::vector<double>& want, std::int64_t row,
                         double tolerance, double absolute = 0) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t begin = 0, n = static_cast<std::size_t>(row); begin < want.size(); begin += n) {
    double largest = 0;
    for (std::size_t i = begin; i < begin + n; ++i)
      if (std::isfinite(want[i])) largest = std::max(largest, std::abs(want[i]));
    for (std::size_t i = begin; i < begin + n; ++i) {
      const double g = static_cast<double>(got[i]);
      if (!std::isfinite(want[i])) {
        ASSERT_TRUE(std::isnan(want[i]) ? std::isnan(g) : g == want[i]) << "element " << i << ": " << g;
        continue;
      }
      const double allowed = tolerance * (std::abs(want[i]) + largest) + absolute;
      // Written so that a NaN fails.
      ASSERT_TRUE(std::abs(g - want[i]) <= allowed) << "element " << i << " (row " << i / n << ", column "
                                                    << i % n << "): " << g << ", expected " << want[i];
    }
  }
}

inline void expect_close(const Tensor& got, const std::vector<double>& want, double tolerance,
                         double absolute = 0, std::int64_t row = 0) {
  expect_close(values(got), want, row == 0 ? got.cols() : row, tolerance, absolute);
}

/// Checks `gradient` (of `loss()` with respect to x) along random directions by central differences:
/// (loss(x + h u) - loss(x - h u)) / 2h against gradient · u, relative to |gradient| |u| / sqrt(elements) +
/// 1e-3.
template <typename Loss>
void expect_gradient(const Tensor& x, const std::vector<float>& gradient, Loss loss, double step = 1e-2,
                     double tolerance = 2e-3) {
  const std::vector<float> at = values(x);
  ASSERT_EQ(at.size(), gradient.size());
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal;
    std::vector<float> plus(at), minus(at);
    double want = 0, size = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const float move = static_cast<float>(step * normal(generator));
      plus[i] += move;
      minus[i] -= move;
      const double moved = (static_cast<double>(plus[i]) - static_cast<double>(minus[i])) / (2 * step);
      want += static_cast<double>(gradient[i]) * moved;
      size += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
    }
    set_values(x, plus);
    const double above = loss();
    set_values(x, minus);
    const double below = loss();
    set_values(x, at);
    const double got = (above - below) / (2 * step);
    EXPECT_TRUE(std::abs(got - want) <= tolerance * (std::sqrt(size) + 1e-3))
        << "direction " << seed << ": difference quotient " << got << ", gradient " << want;
  }
}

/// Normal deviates. dot(values(out), weights) with fixed weights is a loss whose gradient at `out` is the
/// weights.
inline std::vector<float> random_values(std::int64_t n, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<std::size_t>(n));
  for (float& v : out) v = normal(generator);
  return out;
}
inline double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// Runs `body()` with 1, 2 and 3 threads, or on the emulated device with several orders of its threads; it
/// returns a result that must be the same to the bit each time.
template <typename Body>
void expect_same_bits_for_any_threads(Body body) {
  if (on_cuda()) {
    const std::vector<float> expected = body();
    for (std::uint32_t seed : {0u, 1u, 2u}) {
      set_fiber_order(seed);
      EXPECT_TRUE(same_bits(body(), expected)) << "order of fibers " << seed;
    }
    set_fiber_order(0);
    return;
  }
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<float> first = body();
  for (int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    EXPECT_TRUE(same_bits(body(), first)) << threads << " threads";
  }
  omp_set_num_threads(before);
}

/// body(bench) must take the same memory and count the same operations when it is planned as when it runs.
template <typename Body>
void expect_plan_equals_run(Body body) {
  Bench run, plan(Device::Plan);
  body(run);
  body(plan);
  EXPECT_EQ(plan.arena.ledger().peak(), run.arena.ledger().peak());
  EXPECT_EQ(plan.arena.ledger().at_peak(), run.arena.ledger().at_peak());
  EXPECT_EQ(plan.arena.ledger().current(), run.arena.ledger().current());
  EXPECT_EQ(plan.context.flops.gemm, run.context.flops.gemm);
  EXPECT_EQ(plan.context.flops.attention, run.context.flops.attention);
}

// ---- numeric cases ------------------------------------------------------------------------------------

inline std::filesystem::path numeric_path(const std::string& name) {
  return std::filesystem::path(COMPACT_SOURCE_DIR) / ".." / "shared" / "cases" / "numeric" / (name + ".json");
}

inline nlohmann::json read_numeric(const std::string& name) {
  std::ifstream in(numeric_path(name));
  return nlohmann::json::parse(in);
}

/// {"shape": [...], "data": [...]} as numbers; "inf", "-inf" and "nan" are strings there.
inline std::vector<double> numbers(const nlohmann::json& tensor) {
  std::vector<double> out;
  for (const nlohmann::json& v : tensor.at("data"))
    out.push_back(!v.is_string() ? v.get<double>()
                  : v == "nan"   ? std::numeric_limits<double>::quiet_NaN()
                  : v == "inf"   ? std::numeric_limits<double>::infinity()
                                 : -std::numeric_limits<double>::infinity());
  return out;
}

inline double absolute_tolerance(const nlohmann::json& numeric, const std::string& name) {
  if (!numeric.contains("absolute") || !numeric["absolute"].contains("fp32")) return 0;
  const nlohmann::json& by_name = numeric["absolute"]["fp32"];
  return by_name.contains(name) ? by_name[name].get<double>() : by_name.value("*", 0.0);
}

}  // namespace compact::testing

/// Defines `variable` as the numeric case `name`, or skips the test where the cases are absent.
#define COMPACT_NUMERIC_CASE(variable, name)                                                \
  if (!std::filesystem::exists(::compact::testing::numeric_path(name)))                     \
    GTEST_SKIP() << "numeric case " << (name) << " is not there (../shared/cases/numeric)"; \
  const nlohmann::json variable = ::compact::testing::read_numeric(name)
