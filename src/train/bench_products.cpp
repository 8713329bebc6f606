#include "bench_products.h"

#include <algorithm>
#include <chrono>

#include "compact/cuda/queue.h"
#include "compact/kernels/elementwise.h"
#include "compact/kernels/gemm.h"
#include "compact/train/engine.h"
#include "kernels/gemm_cuda.h"

namespace compact {

namespace {

using Clock = std::chrono::steady_clock;

// Operands of the call's own shapes, strides and types in an arena of their own.
struct Product {
  Product(const GemmCall& call_, cuda::Queue* queue)
      : call(call_),
        arena(queue != nullptr ? Device::Cuda : Device::Cpu, bytes(call_, queue != nullptr)),
        context(arena, queue) {
    a = make(call.transpose_a ? call.K : call.M, call.transpose_a ? call.M : call.K, call.lda, call.operands);
    b = make(call.transpose_b ? call.N : call.K, call.transpose_b ? call.K : call.N, call.ldb, call.operands);
    c = make(call.M, call.N, call.ldc, call.result);
  }
  static std::int64_t bytes(const GemmCall& call, bool on_cuda) {
    const std::int64_t operands = (call.transpose_a ? call.K : call.M) * call.lda +
                                  (call.transpose_b ? call.N : call.K) * call.ldb + call.M * call.ldc;
    if (on_cuda) return 4 * operands + cuda::kGemmWorkspace + (std::int64_t{1} << 20);
    // Room for oneDNN's scratchpad and, where bf16 products are computed in fp32, for converted copies.
    return (call.operands == DType::BF16 ? 8 : 4) * operands + (std::int64_t{256} << 20);
  }
  Tensor make(std::int64_t rows, std::int64_t cols, std::int64_t ld, DType type) {
    const Tensor whole = arena.persistent("operand", {rows, ld}, type, Category::Workspace);
    // Other numbers than one constant: those draw more power, which lowers the clock of some cards.
    fill_normal(context, whole, 0.5f, 1, made++);
    return whole.columns(0, cols);
  }
  void run() {
    gemm(context, a, call.transpose_a ? Transpose::Yes : Transpose::No, b,
         call.transpose_b ? Transpose::Yes : Transpose::No, c, call.accumulate);
  }

  GemmCall call;
  Arena arena;
  Context context;
  Tensor a, b, c;
  std::uint32_t made = 0;
};

GemmCall contiguous_call(std::int64_t M, std::int64_t K, std::int64_t N, bool transpose_a, bool transpose_b,
                         DType operands, DType result) {
  return {M,     K,        N,     transpose_a ? M : K, transpose_b ? K : N, N, transpose_a, transpose_b,
          false, operands, result};
}

}  // namespace

StepProducts products_of(const RunConfig& run, const ModelConfig& model) {
  Arena arena(Device::Plan, Arena::kUnlimited, run.device == "cuda" ? Device::Cuda : Device::Cpu);
  const auto communicator = make_local_communicator();
  Engine engine(arena, run, model, *communicator);
  StepBatch batch;
  batch.sequences = run.batch.tokens_per_step / run.data.sequence_length;
  // The second step is like all others; the first one of a window may have more to do.
  engine.step(batch, 0, 0.0);

  StepProducts products;
  Context& context = engine.context();
  // Operations outside of the calls of matrix products. A step without a target makes no update.
  const auto own_flops = [&](std::int64_t targets) {
    std::vector<GemmCall> calls;
    context.gemm_calls = &calls;
    context.flops = {};
    batch.targets = targets;
    engine.step(batch, 1, 0.0);
    double flops = static_cast<double>(context.flops.gemm);
    products.calls.clear();
    for (const GemmCall& call : calls) {
      ++products.calls[call];
      flops -= GemmBench{call, 1, 0}.flops();
    }
    return flops;
  };
  products.projection_flops = own_flops(0);
  products.optimizer_flops = own_flops(1) - products.projection_flops;
  return products;
}

double time_product(const GemmCall& call, int repeats, cuda::Queue* queue) {
  Product product(call, queue);
  const int at_once = queue != nullptr ? 8 : 1;  // hides the time to queue a product
  const auto time = [&](int calls) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) product.run();
    if (queue != nullptr) queue->wait();
    return std::chrono::duration<double>(Clock::now() - start).count() / calls;
  };
  time(1);
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) times.push_back(time(at_once));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

std::vector<GemmBench> bench_shapes(DType type, int repeats, cuda::Queue* queue) {
  std::vector<GemmCall> calls;
  std::vector<std::int64_t> sides = {256, 512, 1024, 2048};
  if (queue != nullptr) sides.insert(sides.end(), {4096, 8192});
  for (const std::int64_t n : sides) calls.push_back(contiguous_call(n, n, n, false, false, type, type));
  // N tokens, a linear layer from n inputs to m outputs with its weight [m, n], and the head.
  constexpr std::int64_t N = 2048;
  for (const auto& [n, m] :
       {std::pair<std::int64_t, std::int64_t>{512, 512}, {512, 2752}, {1376, 512}, {512, 32000}}) {
    calls.push_back(contiguous_call(N, n, m, false, true, type, type));        // forward: x Wᵀ
    calls.push_back(contiguous_call(N, m, n, false, false, type, type));       // input gradient: dO W
    calls.push_back(contiguous_call(m, N, n, true, false, type, DType::F32));  // weight gradient: dOᵀ x
  }
  std::vector<GemmBench> shapes;
  for (const GemmCall& call : calls) shapes.push_back({call, 1, time_product(call, repeats, queue)});
  return shapes;
}

}  // namespace compact
