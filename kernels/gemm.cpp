#include "compact/kernels/gemm.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <unordered_map>

#include "compact/kernels/elementwise.h"
#include "kernels/checks.h"
#include "kernels/cpu_isa.h"
#include "kernels/gemm_cuda.h"
#include "kernels/word_hash.h"

namespace compact {

namespace {

/// Sizes, strides, types and flags of a product: everything a primitive depends on.
struct GemmKey {
  std::array<std::int64_t, 12> words;
  bool operator==(const GemmKey& other) const { return words == other.words; }
};

struct GemmKeyHash {
  std::size_t operator()(const GemmKey& key) const { return hash_words(key.words); }
};

/// A description is enough to know the scratchpad; the primitive (compiled code) is made when it first runs.
struct GemmPlan {
  dnnl::matmul::primitive_desc description;
  std::optional<dnnl::matmul> primitive;
  std::int64_t scratch_bytes = 0;
};

dnnl::engine& engine() {
  static dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

dnnl::memory::data_type data_type(DType t) {
  return t == DType::BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// op(t) as [rows, cols]: a transposed operand is the same memory with its strides exchanged.
dnnl::memory::desc describe(const Tensor& t, Transpose transpose, std::int64_t rows, std::int64_t cols) {
  return transpose == Transpose::No
             ? dnnl::memory::desc({rows, cols}, data_type(t.dtype), dnnl::memory::dims{t.ld, 1})
             : dnnl::memory::desc({rows, cols}, data_type(t.dtype), dnnl::memory::dims{1, t.ld});
}

/// All but the last dimension, also where the last one is 0.
std::int64_t leading(const Tensor& t) {
  std::int64_t n = 1;
  for (int i = 0; i + 1 < t.shape.rank(); ++i) n *= t.shape[i];
  return n;
}

class GemmCache {
 public:
  /// The plan of a product, made once.
  std::shared_ptr<GemmPlan> find(const GemmKey& key, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                 const dnnl::memory::desc& c, bool accumulate, bool to_run) {
    const std::scoped_lock lock(mutex_);
    auto [at, is_new] = plans_.try_emplace(key);
    if (is_new) at->second = make(a, b, c, accumulate);
    const std::shared_ptr<GemmPlan>& plan = at->second;
    if (to_run && !plan->primitive) plan->primitive.emplace(plan->description);
    return plan;
  }

 private:
  static std::shared_ptr<GemmPlan> make(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                        const dnnl::memory::desc& c, bool accumulate) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    auto plan = std::make_shared<GemmPlan>();
    plan->description = dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, engine());
    plan->scratch_bytes = static_cast<std::int64_t>(plan->description.scratchpad_desc().get_size());
    return plan;
  }

  std::mutex mutex_;
  std::unordered_map<GemmKey, std::shared_ptr<GemmPlan>, GemmKeyHash> plans_;
};

GemmCache& cache() {
  static GemmCache c;
  return c;
}

/// The product by oneDNN; sizes are checked and not 0.
void run_product(Context& context, const Tensor& a, Transpose transpose_a, const Tensor& b,
                 Transpose transpose_b, const Tensor& c, bool accumulate, std::int64_t K) {
  const std::int64_t M = leading(c), N = c.cols();
  // A primitive splits its work for the number of threads at its creation.
  const GemmKey key{{M, N, K, a.ld, b.ld, c.ld, transpose_a == Transpose::Yes, transpose_b == Transpose::Yes,
                     accumulate, static_cast<std::int64_t>(c.dtype), static_cast<std::int64_t>(a.dtype),
                     omp_get_max_threads()}};
  const auto a_desc = describe(a, transpose_a, M, K), b_desc = describe(b, transpose_b, K, N),
             c_desc = describe(c, Transpose::No, M, N);
  const auto plan = cache().find(key, a_desc, b_desc, c_desc, accumulate, !context.planning());
  const ScratchScope scope(context.arena);
  const Tensor scratch = context.arena.scratch("gemm scratchpad", {(plan->scratch_bytes + 3) / 4}, DType::F32,
                                               Category::Workspace);
  if (context.planning()) return;
  dnnl::stream stream(engine());
  plan->primitive->execute(
      stream,
      {{DNNL_ARG_SRC, dnnl::memory(a_desc, engine(), a.data)},
       {DNNL_ARG_WEIGHTS, dnnl::memory(b_desc, engine(), b.data)},
       {DNNL_ARG_DST, dnnl::memory(c_desc, engine(), c.data)},
       {DNNL_ARG_SCRATCHPAD, dnnl::memory(plan->description.scratchpad_desc(), engine(), scratch.data)}});
  stream.wait();
}

// oneDNN packs its operands for each call. It loses up to a fifth of its speed where a transposed A is so
// wide, or the inner dimension so long, that what it packs leaves the second-level cache; pieces of these
// sizes do not. Measured on AVX-512 with 2 threads (docs/results.md).
constexpr std::int64_t kWideTransposed = 700, kMostPieces = 8, kLongInner = 8192;

/// C += op(A) op(B) (or =) in pieces of the inner dimension. A BF16 C is rounded once, after the last.
void run_long_product(Context& context, const Tensor& a, const Tensor& b, Transpose transpose_b,
                      const Tensor& c, bool accumulate, std::int64_t K) {
  const ScratchScope scope(context.arena);
  Tensor sum = c;
  if (c.dtype == DType::BF16) {
    sum = context.arena.scratch("gemm sum", {leading(c), c.cols()}, DType::F32);
    if (accumulate) copy(context, c, sum);
  }
  const std::int64_t pieces = (K + kLongInner - 1) / kLongInner;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t begin = K * i / pieces, count = K * (i + 1) / pieces - begin;
    const Tensor part = transpose_b == Transpose::Yes ? b.columns(begin, count) : b.row_range(begin, count);
    run_product(context, a.columns(begin, count), Transpose::No, part, transpose_b, sum, accumulate || i > 0,
                count);
  }
  if (c.dtype == DType::BF16) copy(context, sum, c);
}

/// The product, in pieces where it is faster so.
void run_in_pieces(Context& context, const Tensor& a, Transpose transpose_a, const Tensor& b,
                   Transpose transpose_b, const Tensor& c, bool accumulate, std::int64_t K) {
  const std::int64_t M = leading(c);
  if (transpose_a == Transpose::Yes) {
    const std::int64_t pieces = std::min((M + kWideTransposed - 1) / kWideTransposed, kMostPieces);
    for (std::int64_t i = 0; i < pieces; ++i) {
      const std::int64_t begin = M * i / pieces, count = M * (i + 1) / pieces - begin;
      run_product(context, a.columns(begin, count), transpose_a, b, transpose_b, c.row_range(begin, count),
                  accumulate, K);
    }
  } else if (K >= 2 * kLongInner) {
    run_long_product(context, a, b, transpose_b, c, accumulate, K);
  } else {
    run_product(context, a, transpose_a, b, transpose_b, c, accumulate, K);
  }
}

/// `t` in fp32 in scratch (itself, if it is F32 already).
Tensor widened(Context& context, const Tensor& t) {
  if (t.dtype == DType::F32) return t;
  const Tensor wide = context.arena.scratch("gemm operand", {leading(t), t.cols()}, DType::F32);
  copy(context, t, wide);
  return wide;
}

}  // namespace

void gemm(Context& context, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
          const Tensor& c, bool accumulate) {
  const bool ta = transpose_a == Transpose::Yes, tb = transpose_b == Transpose::Yes;
  const std::int64_t M = leading(c), N = c.cols(), K = ta ? leading(a) : a.cols();
  require(is_float(a) && is_float(c), "gemm", "a, b and c must be F32 or BF16");
  require(a.dtype == b.dtype, "gemm", "a and b must be of one type");
  require(a.dtype == DType::BF16 || c.dtype == DType::F32, "gemm", "a product of F32 is F32");
  require((ta ? a.cols() : leading(a)) == M, "gemm", "rows of op(a) and of c differ");
  require((tb ? b.cols() : leading(b)) == K, "gemm", "the inner sizes of op(a) and op(b) differ");
  require((tb ? leading(b) : b.cols()) == N, "gemm", "columns of op(b) and of c differ");
  context.flops.gemm += 2 * M * N * K;
  if (context.gemm_calls != nullptr)
    context.gemm_calls->push_back({M, K, N, a.ld, b.ld, c.ld, ta, tb, accumulate, a.dtype, c.dtype});
  const OpScope timed(context.clock, Op::Gemm, bytes_of({a, b, c}) + (accumulate ? c.bytes() : 0));
  if (M == 0 || N == 0) return;
  if (K == 0) {
    if (!accumulate) zero(context, c);  // the empty sum
    return;
  }
  if (context.on_cuda()) {
    const ScratchScope scope(context.arena);
    const Tensor workspace = context.arena.scratch(
        "gemm workspace", {cuda::kGemmWorkspace / size_of(DType::F32)}, DType::F32, Category::Workspace);
    if (context.planning()) return;
    return cuda::gemm(*context.queue, a, transpose_a, b, transpose_b, c, accumulate, workspace);
  }
  if (a.dtype == DType::F32 || has_bf16_products()) {
    run_in_pieces(context, a, transpose_a, b, transpose_b, c, accumulate, K);
    return;
  }
  const ScratchScope scope(context.arena);
  const Tensor wide_a = widened(context, a), wide_b = widened(context, b);
  if (c.dtype == DType::F32) {
    run_in_pieces(context, wide_a, transpose_a, wide_b, transpose_b, c, accumulate, K);
    return;
  }
  const Tensor wide_c = context.arena.scratch("gemm result", {M, N}, DType::F32);
  if (accumulate) copy(context, c, wide_c);
  run_in_pieces(context, wide_a, transpose_a, wide_b, transpose_b, wide_c, accumulate, K);
  copy(context, wide_c, c);
}

}  // namespace compact
