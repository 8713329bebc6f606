#include "machine_card.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "compact/cuda/device.h"
#include "compact/kernels/elementwise.h"
#include "compact/kernels/gemm.h"
#include "compact/kernels/global_norm.h"
#include "compact/memory/context.h"
#include "kernels/gemm_cuda.h"

namespace compact {

namespace {

using Seconds = std::chrono::duration<double>;

constexpr std::int64_t kSlack = std::int64_t{16} << 20;  // alignment, and the ops' own small scratch

// Seconds of one `work`, the best of several batches of calls, each long enough to hide that they are queued
// and waited for. After one that warms up.
double best_seconds(cuda::Queue& queue, const std::function<void()>& work) {
  constexpr int kBatches = 6, kMostCalls = 1024;
  constexpr double kBatchSeconds = 5e-3, kEnoughSeconds = 0.3;
  const auto time = [&](int calls) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) work();
    queue.wait();
    return Seconds(std::chrono::steady_clock::now() - start).count() / calls;
  };
  double best = time(1), total = best;  // the first call may look for an algorithm
  int calls = 1;
  for (int i = 0; i < kBatches && total < kEnoughSeconds;) {
    const double one = time(calls);
    best = std::min(best, one);
    total += one * calls;
    if (one * calls < kBatchSeconds && calls < kMostCalls)
      calls *= 4;
    else
      ++i;
  }
  return best;
}

bool has_room(const cuda::Queue& queue, std::int64_t bytes) {
  return bytes <= cuda::device_info(queue.options().device).free_memory / 2;
}

}  // namespace

double measure_gemm_peak_of_card(DType type, cuda::Queue& queue) {
  constexpr double kLongEnough = 2e-3;  // a larger product would not be faster
  double peak = 0;
  for (std::int64_t n = 256; n <= 8192; n *= 2) {
    const std::int64_t width = type == DType::BF16 ? 2 : 4;
    const std::int64_t bytes = 3 * n * n * width + cuda::kGemmWorkspace + kSlack;
    if (!has_room(queue, bytes)) break;
    Arena arena(Device::Cuda, bytes);
    Context context(arena, &queue);
    const Tensor a = arena.persistent("a", {n, n}, type, Category::Workspace);
    const Tensor b = arena.persistent("b", {n, n}, type, Category::Workspace);
    const Tensor c = arena.persistent("c", {n, n}, type, Category::Workspace);
    // Numbers as a run has them: on constants a card draws less power and is faster than it will ever be.
    fill_normal(context, a, 1.0f, 1, 0);
    fill_normal(context, b, 1.0f, 1, 1);
    const double seconds =
        best_seconds(queue, [&] { gemm(context, a, Transpose::No, b, Transpose::Yes, c, false); });
    const double side = static_cast<double>(n);
    peak = std::max(peak, 2 * side * side * side / seconds);
    if (seconds > kLongEnough) break;
  }
  return peak;
}

double measure_memory_bandwidth_of_card(cuda::Queue& queue) {
  constexpr double kLongEnough = 2e-2;
  double bandwidth = 0;  // of the largest arrays: smaller ones come from the cache
  constexpr std::int64_t cols = 1 << 10;
  for (std::int64_t rows = 1 << 8; rows <= 1 << 18; rows *= 4) {  // 1 MiB to 1 GiB
    const std::int64_t bytes = 4 * rows * cols;
    if (!has_room(queue, 3 * bytes + kSlack)) break;
    Arena arena(Device::Cuda, 3 * bytes + kSlack);
    Context context(arena, &queue);
    const Tensor a = arena.persistent("a", {rows, cols}, DType::F32, Category::Workspace);
    const Tensor b = arena.persistent("b", {rows, cols}, DType::F32, Category::Workspace);
    const Tensor c = arena.persistent("c", {rows, cols}, DType::F32, Category::Workspace);
    const Tensor norm = arena.persistent("norm", {1}, DType::F32, Category::Workspace);
    for (const Tensor& t : {a, b, c}) fill(context, t, 0.5f);
    const Tensor both[] = {a, b};
    const double of_one = static_cast<double>(bytes);
    const double copied = best_seconds(queue, [&] { copy(context, a, c); });
    const double added = best_seconds(queue, [&] { add(context, a, b, c); });
    const double read = best_seconds(queue, [&] { global_norm(context, both, norm); });
    bandwidth = std::max({2 * of_one / copied, 3 * of_one / added, 2 * of_one / read});
    if (added > kLongEnough) break;
  }
  return bandwidth;
}

}  // namespace compact
