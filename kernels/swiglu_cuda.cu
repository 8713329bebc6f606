#include "kernels/by_type.h"
#include "kernels/launch_cuda.h"
#include "kernels/pack_cuda.h"
#include "kernels/swiglu_cuda.h"

namespace compact::cuda {

namespace {

constexpr int kThreads = 256;

/// 1 / (1 + e^-x): 0 and 1 in the tails, NaN stays NaN.
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + fast_exp2(x * -1.44269504f)); }

/// x as it would come back from a tensor of T.
template <typename T>
__device__ __forceinline__ float rounded(float x) {
  if constexpr (sizeof(T) == sizeof(float))
    return x;
  else
    return to_float(nearest_bf16(x));
}

/// All views of one type; activation and product may be null. [N, F], gate_up and dgate_up [N, 2F].
template <typename T>
struct Swiglu {
  const T *gate_up, *given_activation, *dout;
  T *out, *activation, *dgate_up;  // out: forward's result, or backward's product
  std::int64_t ldg, lda, ldy, ldo, ldd, N, F;
};

struct Gradient {
  float gate, up, product;
};

/// silu'(g) = s (1 + g (1 - s)) = s + silu (1 - s), s = sigmoid(g). `activation` is what forward kept, or
/// null.
template <typename T>
__device__ __forceinline__ Gradient gradient_of(float g, float u, float dy, const float* activation) {
  const float s = sigmoid(g), silu = g * s;
  return {dy * u * fmaf(silu, 1.0f - s, s), dy * (activation != nullptr ? *activation : rounded<T>(silu)),
          silu * u};
}

/// One pack of a row each. Least traffic of N F elements: gate, up, out, and activation where kept.
template <typename T>
__global__ void __launch_bounds__(kThreads) forward_packs_kernel(Swiglu<T> a) {
  const std::int64_t packs = a.F / kPack<T>, i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.N * packs) return;
  std::int64_t n, column;
  row_and_column(i, packs, n, column);
  column *= kPack<T>;
  const T* gate = a.gate_up + n * a.ldg;
  float g[kPack<T>], u[kPack<T>];
  load_pack(gate, column, a.F, true).floats(g);
  load_pack(gate + a.F, column, a.F, true).floats(u);
  for (int j = 0; j < kPack<T>; ++j) {
    g[j] *= sigmoid(g[j]);
    u[j] *= g[j];
  }
  store_pack(a.out + n * a.ldo, column, a.F, true, Pack<T>::of(u));
  if (a.activation != nullptr) store_pack(a.activation + n * a.lda, column, a.F, true, Pack<T>::of(g));
}

/// Each element is read before it is written, and by the same thread: dgate_up may be gate_up, product dout.
/// Least traffic: gate, up, dout, dgate, dup, and activation and product where they are there.
template <typename T>
__global__ void __launch_bounds__(kThreads) backward_packs_kernel(Swiglu<T> a) {
  const std::int64_t packs = a.F / kPack<T>, i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.N * packs) return;
  std::int64_t n, column;
  row_and_column(i, packs, n, column);
  column *= kPack<T>;
  const T* gate = a.gate_up + n * a.ldg;
  const bool given = a.given_activation != nullptr;
  float g[kPack<T>], u[kPack<T>], dy[kPack<T>], kept[kPack<T>];
  load_pack(gate, column, a.F, true).floats(g);
  load_pack(gate + a.F, column, a.F, true).floats(u);
  load_pack(a.dout + n * a.ldy, column, a.F, true).floats(dy);
  if (given) load_pack(a.given_activation + n * a.lda, column, a.F, true).floats(kept);
  for (int j = 0; j < kPack<T>; ++j) {
    const Gradient d = gradient_of<T>(g[j], u[j], dy[j], given ? &kept[j] : nullptr);
    g[j] = d.gate;
    u[j] = d.up;
    dy[j] = d.product;
  }
  T* dgate = a.dgate_up + n * a.ldd;
  store_pack(dgate, column, a.F, true, Pack<T>::of(g));
  store_pack(dgate + a.F, column, a.F, true, Pack<T>::of(u));
  if (a.out != nullptr) store_pack(a.out + n * a.ldo, column, a.F, true, Pack<T>::of(dy));
}

// For views that are not made of packs (an odd F, as the 5461 of a 1B model, puts every row elsewhere):
// neighbours are taken by neighbouring threads, a few groups of kThreads by each, so that loads overlap.
constexpr int kEach = 4;

/// Blocks that take a row of F.
__host__ __device__ constexpr std::int64_t blocks_of_row(std::int64_t F) {
  return (F + kThreads * kEach - 1) / (kThreads * kEach);
}

/// Calls f(k, n, column) for the elements of the thread.
template <typename F>
__device__ __forceinline__ void each_element(std::int64_t cols, F f) {
  const unsigned blocks = static_cast<unsigned>(blocks_of_row(cols));  // a short division
  const std::int64_t n = blockIdx.x / blocks;
  const std::int64_t first = std::int64_t{blockIdx.x % blocks} * (kThreads * kEach) + threadIdx.x;
  for (int k = 0; k < kEach; ++k)
    if (first + k * kThreads < cols) f(k, n, first + k * kThreads);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) forward_elements_kernel(Swiglu<T> a) {
  float g[kEach], u[kEach];
  each_element(a.F, [&](int k, std::int64_t n, std::int64_t column) {
    g[k] = to_float(a.gate_up[n * a.ldg + column]);
    u[k] = to_float(a.gate_up[n * a.ldg + a.F + column]);
  });
  each_element(a.F, [&](int k, std::int64_t n, std::int64_t column) {
    const float silu = g[k] * sigmoid(g[k]);
    put(a.out[n * a.ldo + column], u[k] * silu);
    if (a.activation != nullptr) put(a.activation[n * a.lda + column], silu);
  });
}

template <typename T>
__global__ void __launch_bounds__(kThreads) backward_elements_kernel(Swiglu<T> a) {
  float g[kEach], u[kEach], dy[kEach], kept[kEach];
  const bool given = a.given_activation != nullptr;
  each_element(a.F, [&](int k, std::int64_t n, std::int64_t column) {
    g[k] = to_float(a.gate_up[n * a.ldg + column]);
    u[k] = to_float(a.gate_up[n * a.ldg + a.F + column]);
    dy[k] = to_float(a.dout[n * a.ldy + column]);
    kept[k] = given ? to_float(a.given_activation[n * a.lda + column]) : 0.0f;
  });
  each_element(a.F, [&](int k, std::int64_t n, std::int64_t column) {
    const Gradient d = gradient_of<T>(g[k], u[k], dy[k], given ? &kept[k] : nullptr);
    put(a.dgate_up[n * a.ldd + column], d.gate);
    put(a.dgate_up[n * a.ldd + a.F + column], d.up);
    if (a.out != nullptr) put(a.out[n * a.ldo + column], d.product);
  });
}

/// Both halves of a [N, 2F] view.
bool halves_in_packs(const Tensor& t) {
  return in_packs(t.columns(0, t.cols() / 2)) && in_packs(t.columns(t.cols() / 2, t.cols() / 2));
}
bool absent_or_in_packs(const Tensor& t) { return t.empty() || in_packs(t); }

template <typename T>
void launch_swiglu(Queue& queue, const char* op, const Swiglu<T>& a, bool packs, void (*by_packs)(Swiglu<T>),
                   void (*by_elements)(Swiglu<T>)) {
  const std::int64_t count = a.N * a.F;
  if (count == 0) return;
  if (packs)
    launch(queue, {op, blocks_for(count / kPack<T>, kThreads), kThreads}, by_packs, a);
  else
    launch(queue, {op, static_cast<unsigned>(a.N * blocks_of_row(a.F)), kThreads}, by_elements, a);
}

}  // namespace

void swiglu_forward(Queue& queue, const Tensor& gate_up, const Tensor& out, const Tensor& activation) {
  const bool packs = halves_in_packs(gate_up) && in_packs(out) && absent_or_in_packs(activation);
  by_type(out.dtype, [&](auto type) {
    using T = decltype(type);
    const Swiglu<T> a = {
        gate_up.as<T>(), nullptr, nullptr, out.as<T>(), activation.as<T>(), nullptr,   gate_up.ld,
        activation.ld,   0,       out.ld,  0,           out.rows(),         out.cols()};
    launch_swiglu<T>(queue, "swiglu_forward", a, packs, forward_packs_kernel<T>, forward_elements_kernel<T>);
  });
}

void swiglu_backward(Queue& queue, const Tensor& gate_up, const Tensor& activation, const Tensor& dout,
                     const Tensor& dgate_up, const Tensor& product) {
  const bool packs = halves_in_packs(gate_up) && halves_in_packs(dgate_up) && in_packs(dout) &&
                     absent_or_in_packs(activation) && absent_or_in_packs(product);
  by_type(dout.dtype, [&](auto type) {
    using T = decltype(type);
    const Swiglu<T> a = {gate_up.as<T>(),  activation.as<T>(), dout.as<T>(),  product.as<T>(), nullptr,
                         dgate_up.as<T>(), gate_up.ld,         activation.ld, dout.ld,         product.ld,
                         dgate_up.ld,      dout.rows(),        dout.cols()};
    launch_swiglu<T>(queue, "swiglu_backward", a, packs, backward_packs_kernel<T>,
                     backward_elements_kernel<T>);
  });
}

}  // namespace compact::cuda
