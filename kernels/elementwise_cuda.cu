#include "kernels/elementwise_cuda.h"

#include "kernels/by_type.h"
#include "kernels/tiles_cuda.h"

/// Every element is read and written once: the floor of each kernel is the bytes of its tensors over the
/// bandwidth of the memory. A thread has four vectors of 16 bytes under way.
namespace compact::cuda {

namespace {

constexpr int kUnroll = 4;
using Cut = Tiles<kUnroll>;

/// out[i, j] = f(a[i, j], b[i, j]) and the like: calls body(row, column) for the first element of each of the
/// thread's vectors.
template <int kVector, typename Body>
__device__ __forceinline__ void each_vector(const Cut& cut, Body body) {
  const std::int64_t row = cut.row(), first = cut.item();
  if (row >= cut.rows) return;
  for (int u = 0; u < kUnroll; ++u)
    if (const std::int64_t item = first + u * std::int64_t{blockDim.x}; item < cut.items)
      body(u, row, item * kVector);
}

template <typename T, int kVector>
__global__ void __launch_bounds__(kTileThreads) fill_kernel(Cut cut, T* x, std::int64_t ld, float value) {
  Elements<T, kVector> all;
  for (T& element : all.at) put(element, value);
  each_vector<kVector>(cut, [&](int, std::int64_t i, std::int64_t j) { store_elements(x, i * ld + j, all); });
}

// Between equal types every bit is kept: not by way of a float, which would quiet a NaN.
template <typename T>
__device__ __forceinline__ void convert(T from, T& to) {
  to = from;
}
__device__ __forceinline__ void convert(Bf16 from, float& to) { to = to_float(from); }
__device__ __forceinline__ void convert(float from, Bf16& to) { to = nearest_bf16(from); }

template <typename From, typename To, int kVector>
__global__ void __launch_bounds__(kTileThreads)
    copy_kernel(Cut cut, const From* from, std::int64_t from_ld, To* to, std::int64_t to_ld) {
  Elements<From, kVector> read[kUnroll];
  each_vector<kVector>(cut, [&](int u, std::int64_t i, std::int64_t j) {
    read[u] = load_elements<kVector>(from + i * from_ld + j);
  });
  each_vector<kVector>(cut, [&](int u, std::int64_t i, std::int64_t j) {
    Elements<To, kVector> written;
    for (int k = 0; k < kVector; ++k) convert(read[u].at[k], written.at[k]);
    store_elements(to, i * to_ld + j, written);
  });
}

template <typename T, int kVector>
__global__ void __launch_bounds__(kTileThreads) add_kernel(Cut cut, const T* a, std::int64_t a_ld, const T* b,
                                                           std::int64_t b_ld, T* out, std::int64_t out_ld) {
  Elements<T, kVector> x[kUnroll], y[kUnroll];
  each_vector<kVector>(cut, [&](int u, std::int64_t i, std::int64_t j) {
    x[u] = load_elements<kVector>(a + i * a_ld + j);
    y[u] = load_elements<kVector>(b + i * b_ld + j);
  });
  each_vector<kVector>(cut, [&](int u, std::int64_t i, std::int64_t j) {
    for (int k = 0; k < kVector; ++k) put(x[u].at[k], to_float(x[u].at[k]) + to_float(y[u].at[k]));
    store_elements(out, i * out_ld + j, x[u]);
  });
}

template <int kVector>
__global__ void __launch_bounds__(kTileThreads)
    scale_kernel(Cut cut, float* x, std::int64_t ld, const float* factor) {
  const float by = *factor;
  Elements<float, kVector> read[kUnroll];
  each_vector<kVector>(
      cut, [&](int u, std::int64_t i, std::int64_t j) { read[u] = load_elements<kVector>(x + i * ld + j); });
  each_vector<kVector>(cut, [&](int u, std::int64_t i, std::int64_t j) {
    for (float& element : read[u].at) element *= by;
    store_elements(x, i * ld + j, read[u]);
  });
}

/// One long row where all views are contiguous: narrow matrices then fill their blocks, and may take vectors
/// that a row of them does not.
template <typename... More>
void flatten(Tensor& first, More&... more) {
  if (!first.contiguous() || !(more.contiguous() && ...)) return;
  const Shape flat{first.elements()};
  first = first.reshaped(flat);
  ((more = more.reshaped(flat)), ...);
}

/// Calls run(vector) with the number of elements of a vector as a type: kVector, or 1 where the views do not
/// allow it.
template <int kVector, typename Run, typename... Views>
void by_vector(Run run, const Views&... views) {
  if ((takes_vectors(views, kVector) && ...))
    run(std::integral_constant<int, kVector>{});
  else
    run(std::integral_constant<int, 1>{});
}

}  // namespace

void fill(Queue& queue, const Tensor& view, float value) {
  Tensor x = view;
  if (x.elements() == 0) return;
  flatten(x);
  by_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    by_vector<16 / sizeof(T)>(
        [&](auto vector) {
          const Cut cut(x.rows(), x.cols() / vector);
          launch(queue, cut.launch("fill"), fill_kernel<T, vector>, cut, x.as<T>(), x.ld, value);
        },
        x);
  });
}

void copy(Queue& queue, const Tensor& from_view, const Tensor& to_view) {
  Tensor from = from_view, to = to_view;
  if (to.elements() == 0) return;
  flatten(from, to);
  by_type(from.dtype, [&](auto from_type) {
    by_type(to.dtype, [&](auto to_type) {
      using From = decltype(from_type);
      using To = decltype(to_type);
      by_vector<16 / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To))>(
          [&](auto vector) {
            const Cut cut(to.rows(), to.cols() / vector);
            launch(queue, cut.launch("copy"), copy_kernel<From, To, vector>, cut, from.as<From>(), from.ld,
                   to.as<To>(), to.ld);
          },
          from, to);
    });
  });
}

void add(Queue& queue, const Tensor& a_view, const Tensor& b_view, const Tensor& out_view) {
  Tensor a = a_view, b = b_view, out = out_view;
  if (out.elements() == 0) return;
  flatten(a, b, out);
  by_type(out.dtype, [&](auto type) {
    using T = decltype(type);
    by_vector<16 / sizeof(T)>(
        [&](auto vector) {
          const Cut cut(out.rows(), out.cols() / vector);
          launch(queue, cut.launch("add"), add_kernel<T, vector>, cut, a.as<T>(), a.ld, b.as<T>(), b.ld,
                 out.as<T>(), out.ld);
        },
        a, b, out);
  });
}

void scale(Queue& queue, const Tensor& view, float factor) {
  Tensor x = view;
  if (x.elements() == 0) return;
  flatten(x);
  by_vector<4>(
      [&](auto vector) {
        const Cut cut(x.rows(), x.cols() / vector);
        launch(queue, cut.launch("scale"), scale_kernel<vector>, cut, x.f32(), x.ld, queue.live(factor));
      },
      x);
}

}  // namespace compact::cuda
