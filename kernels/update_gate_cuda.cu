#include "kernels/update_gate_cuda.h"

#include "kernels/gate_rule.h"
#include "kernels/launch_cuda.h"
#include "kernels/reduce_cuda.h"

namespace compact::cuda {

namespace {

constexpr int kThreads = 256;

/// partial [gridDim.x] = sums of x [n], each over every gridDim.x-th group of kThreads elements. Reads 4 n
/// bytes; at a step's 10^5 to 10^6 tokens that is under 2 µs of memory time.
__global__ void __launch_bounds__(kThreads)
    add_sum_pieces_kernel(const float* x, std::int64_t n, double* partial) {
  COMPACT_SHARED(double, places, [kThreads / kWarp]);
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  double sum = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride)
    sum += static_cast<double>(x[i]);
  sum = block_sum(sum, places);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// total [1] += the sum of partial [pieces].
__global__ void __launch_bounds__(kThreads)
    add_sum_total_kernel(const double* partial, std::int64_t pieces, double* total) {
  COMPACT_SHARED(double, places, [kThreads / kWarp]);
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < pieces; i += kThreads) sum += partial[i];
  sum = block_sum(sum, places);
  if (threadIdx.x == 0) *total += sum;
}

// The gate is a few numbers: one thread.
__global__ void open_gate_kernel(double* squares, float* gate) {
  *squares = 0;
  gate[0] = gate[1] = 1;
  gate[2] = 0;
}

__global__ void update_gate_kernel(const double* loss_total, const float* norm, double max_norm,
                                   double* squares, float* gate) {
  judge(*loss_total, static_cast<double>(*norm), max_norm, squares, gate);
}

}  // namespace

void add_sum(Queue& queue, const Tensor& x, const Tensor& partial, const Tensor& total) {
  const std::int64_t pieces = partial.elements();
  launch(queue, {"add_sum", static_cast<unsigned>(pieces), kThreads}, add_sum_pieces_kernel, x.f32(),
         x.elements(), partial.as<double>());
  launch(queue, {"add_sum", 1, kThreads}, add_sum_total_kernel, partial.as<double>(), pieces,
         total.as<double>());
}

void open_gate(Queue& queue, const Tensor& squares, const Tensor& gate) {
  launch(queue, {"open_gate", 1, 1}, open_gate_kernel, squares.as<double>(), gate.f32());
}

void update_gate(Queue& queue, const Tensor& loss_total, const Tensor& norm, double max_norm,
                 const Tensor& squares, const Tensor& gate) {
  launch(queue, {"update_gate", 1, 1}, update_gate_kernel, loss_total.as<double>(), norm.f32(), max_norm,
         squares.as<double>(), gate.f32());
}

}  // namespace compact::cuda
