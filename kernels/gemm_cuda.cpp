#include "kernels/gemm_cuda.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <unordered_map>

#include "compact/core/error.h"
#include "compact/cuda/check.h"
#include "compact/cuda/owned.h"
#include "compact/memory/arena.h"
#include "kernels/word_hash.h"

/// cuBLASLt knows matrices by columns. A row-major C = op(A) op(B) is the transposed C = op(B)ᵀ op(A)ᵀ in its
/// terms, and a row-major matrix is its own transpose there: so the operands change places, and no flag and
/// no memory changes. Below, `left` and `right` are cuBLASLt's first and second operand: b and a.
namespace compact::cuda {

namespace {

/// cuBLASLt wants its workspace at a multiple of 256 bytes; tensors of an arena lie at multiples of 64.
constexpr std::uint64_t kWorkspaceAlignment = 256, kUsableWorkspace = kGemmWorkspace - kWorkspaceAlignment;

void* aligned_workspace(void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return static_cast<std::byte*>(memory) +
         (kWorkspaceAlignment - address % kWorkspaceAlignment) % kWorkspaceAlignment;
}

using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

/// Everything that the choice of an algorithm depends on. No padding: it is hashed by its bytes.
struct ProductKey {
  std::int64_t M, N, K, lda, ldb, ldc;
  std::int64_t transpose_a, transpose_b, accumulate;
  std::int64_t operands, result;  // DType
  std::int64_t align_a, align_b, align_c;
  bool operator==(const ProductKey&) const = default;
};

struct ProductKeyHash {
  std::size_t operator()(const ProductKey& key) const {
    return hash_words(std::bit_cast<std::array<std::int64_t, sizeof(ProductKey) / 8>>(key));
  }
};

/// A product ready to be launched.
struct Product {
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> description;
  Layout left, right, result;
  cublasLtMatmulAlgo_t algorithm{};
};

using Products = std::unordered_map<ProductKey, Product, ProductKeyHash>;

cudaDataType_t data_type(std::int64_t dtype) {
  return static_cast<DType>(dtype) == DType::BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// A row-major [rows, cols] as cuBLASLt sees it.
Layout layout_of(std::int64_t dtype, std::int64_t rows, std::int64_t cols, std::int64_t ld) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, data_type(dtype), static_cast<std::uint64_t>(cols),
                                   static_cast<std::uint64_t>(rows), ld),
        "gemm: a matrix layout");
  return Layout(layout);
}

/// The largest power of two that the address is a multiple of. No more than what every tensor of an arena
/// has: where a tensor lies must not change the algorithm, and with it the bits of the result.
std::int64_t alignment(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return std::min(static_cast<std::int64_t>(address & (~address + 1)), Arena::kAlignment);
}

template <typename T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, T value) {
  check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof(value)), "gemm: an attribute");
}
template <typename T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
        "gemm: a preference");
}

Preference preference_of(const ProductKey& key, std::uint32_t reductions) {
  cublasLtMatmulPreference_t made = nullptr;
  check(cublasLtMatmulPreferenceCreate(&made), "gemm: preferences");
  Preference preference(made);
  set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kUsableWorkspace);
  set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(key.align_b));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(key.align_a));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(key.align_c));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(key.align_c));
  return preference;
}

Product make_product(Queue& queue, const ProductKey& key) {
  Product product;
  const bool tf32 = queue.options().tf32 && static_cast<DType>(key.operands) == DType::F32;
  cublasLtMatmulDesc_t description = nullptr;
  check(cublasLtMatmulDescCreate(&description, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                 CUDA_R_32F),
        "gemm: a description");
  product.description.reset(description);
  const auto operation = [](std::int64_t transpose) { return transpose != 0 ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, operation(key.transpose_b));
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, operation(key.transpose_a));
  product.left = key.transpose_b != 0 ? layout_of(key.operands, key.N, key.K, key.ldb)
                                      : layout_of(key.operands, key.K, key.N, key.ldb);
  product.right = key.transpose_a != 0 ? layout_of(key.operands, key.K, key.M, key.lda)
                                       : layout_of(key.operands, key.M, key.K, key.lda);
  product.result = layout_of(key.result, key.M, key.N, key.ldc);

  // Parts of a long sum are added in fp32 where there is such an algorithm; the other schemes, as fixed in
  // their order, round the parts to the type of the result.
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  for (const std::uint32_t reductions : {std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
                                         std::uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK}}) {
    status = cublasLtMatmulAlgoGetHeuristic(queue.blas(), description, product.left.get(),
                                            product.right.get(), product.result.get(), product.result.get(),
                                            preference_of(key, reductions).get(), 1, &found, &count);
    if (status == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS) break;
  }
  if (status != CUBLAS_STATUS_SUCCESS || count == 0 || found.state != CUBLAS_STATUS_SUCCESS)
    run_error(
        "cuBLASLt has no algorithm for the product [{}, {}] x [{}, {}] of {} to {} (row strides {}, {}, "
        "{}{}{}): "
        "{}",
        key.M, key.K, key.K, key.N, name_of(static_cast<DType>(key.operands)),
        name_of(static_cast<DType>(key.result)), key.lda, key.ldb, key.ldc,
        key.transpose_a != 0 ? ", first transposed" : "", key.transpose_b != 0 ? ", second transposed" : "",
        cublasLtGetStatusName(status != CUBLAS_STATUS_SUCCESS ? status : CUBLAS_STATUS_NOT_SUPPORTED));
  product.algorithm = found.algo;
  return product;
}

Products& products(Queue& queue) {
  std::shared_ptr<void>& kept = queue.products();
  if (!kept) kept = std::make_shared<Products>();
  return *static_cast<Products*>(kept.get());
}

}  // namespace

void gemm(Queue& queue, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
          const Tensor& c, bool accumulate, const Tensor& workspace) {
  const bool ta = transpose_a == Transpose::Yes, tb = transpose_b == Transpose::Yes;
  const ProductKey key{.M = c.rows(),
                       .N = c.cols(),
                       .K = ta ? a.rows() : a.cols(),
                       .lda = a.ld,
                       .ldb = b.ld,
                       .ldc = c.ld,
                       .transpose_a = ta,
                       .transpose_b = tb,
                       .accumulate = accumulate,
                       .operands = static_cast<std::int64_t>(a.dtype),
                       .result = static_cast<std::int64_t>(c.dtype),
                       .align_a = alignment(a.data),
                       .align_b = alignment(b.data),
                       .align_c = alignment(c.data)};
  // Looked for also while a step is only counted: not between the launches of a graph that is recorded.
  Products& known = products(queue);
  auto at = known.find(key);
  if (at == known.end()) at = known.emplace(key, make_product(queue, key)).first;

  struct {
    ProductKey key;
    const void *a, *b, *c, *workspace;
  } const call{key, a.data, b.data, c.data, workspace.data};
  if (!queue.admit(&call, sizeof(call))) return;
  const Product& product = at->second;
  const float one = 1, beta = accumulate ? 1.0f : 0.0f;
  check(
      cublasLtMatmul(queue.blas(), product.description.get(), &one, b.data, product.left.get(), a.data,
                     product.right.get(), &beta, c.data, product.result.get(), c.data, product.result.get(),
                     &product.algorithm, aligned_workspace(workspace.data), kUsableWorkspace, queue.stream()),
      "gemm");
  queue.launched("gemm");
}

std::int64_t products_known(Queue& queue) { return static_cast<std::int64_t>(products(queue).size()); }

}  // namespace compact::cuda
