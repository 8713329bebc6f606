#include "kernels/elementwise_cuda.h"

#include "kernels/by_type.h"
#include "kernels/launch_cuda.h"

namespace compact::cuda {

namespace {

constexpr int kThreads = 256;

/// A view [rows, cols] of elements T as kernels take it.
template <typename T>
struct View {
  T* data;
  std::int64_t ld, rows, cols;
};
template <typename T>
View<T> view(const Tensor& t) {
  return {t.as<T>(), t.ld, t.rows(), t.cols()};
}

template <typename T>
__global__ void fill_kernel(View<T> x, float value) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < x.rows * x.cols) put(x.data[i / x.cols * x.ld + i % x.cols], value);
}

}  // namespace

void fill(Queue& queue, const Tensor& x, float value) {
  if (x.elements() == 0) return;
  by_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    launch(queue, {"fill", blocks_for(x.elements(), kThreads), kThreads}, fill_kernel<T>, view<T>(x), value);
  });
}
void copy(Queue&, const Tensor&, const Tensor&) {}
void add(Queue&, const Tensor&, const Tensor&, const Tensor&) {}
void scale(Queue&, const Tensor&, float) {}

}  // namespace compact::cuda
