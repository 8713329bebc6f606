#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "compact/core/bf16.h"
#include "cuda_emulation/fibers.h"

/// The calls of cuBLASLt that the backend makes, by plain loops: fp32 sums in the order of the inner index.
/// What the library refuses is refused here, and an algorithm serves only the problem that it was found for.
struct cublasLtContext {};

namespace {

using compact::Bf16;

struct Description : cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t left = CUBLAS_OP_N, right = CUBLAS_OP_N;
};
struct Layout : cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::int64_t rows, cols, ld;
};
struct Preference : cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C, D
};

Description& of(cublasLtMatmulDesc_t d) { return *static_cast<Description*>(d); }
Layout& of(cublasLtMatrixLayout_t l) { return *static_cast<Layout*>(l); }
Preference& of(cublasLtMatmulPreference_t p) { return *static_cast<Preference*>(p); }

std::uint32_t size_of(cudaDataType_t type) { return type == CUDA_R_16BF ? 2 : 4; }

/// Column-major: D [M, N] = op(A) [M, K] op(B) [K, N] + beta C.
struct Problem {
  Description description;
  Layout a, b, c, d;

  std::int64_t rows(const Layout& l, cublasOperation_t op) const {
    return op == CUBLAS_OP_N ? l.rows : l.cols;
  }
  std::int64_t cols(const Layout& l, cublasOperation_t op) const {
    return op == CUBLAS_OP_N ? l.cols : l.rows;
  }
  std::int64_t M() const { return rows(a, description.left); }
  std::int64_t N() const { return cols(b, description.right); }
  std::int64_t K() const { return cols(a, description.left); }

  cublasStatus_t status() const {
    for (const Layout* l : {&a, &b, &c, &d})
      if (l->rows <= 0 || l->cols <= 0 || l->ld < l->rows) return CUBLAS_STATUS_INVALID_VALUE;
    if (rows(b, description.right) != K() || c.rows != M() || c.cols != N() || d.rows != M() || d.cols != N())
      return CUBLAS_STATUS_INVALID_VALUE;
    const bool of_floats = a.type == CUDA_R_32F && d.type == CUDA_R_32F;
    const bool of_bf16 = a.type == CUDA_R_16BF && (d.type == CUDA_R_32F || d.type == CUDA_R_16BF);
    if (a.type != b.type || c.type != d.type || (!of_floats && !of_bf16)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (description.scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (description.compute != CUBLAS_COMPUTE_32F &&
        (description.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || !of_floats))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
  }

  /// A number that differs where the problem does.
  std::uint64_t fingerprint() const {
    std::uint64_t h = 0;
    const auto note = [&](std::int64_t w) {
      h = (h ^ static_cast<std::uint64_t>(w)) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    };
    for (int w : {int{description.compute}, int{description.left}, int{description.right}}) note(w);
    for (const Layout* l : {&a, &b, &c, &d})
      for (std::int64_t w : {std::int64_t{l->type}, l->rows, l->cols, l->ld}) note(w);
    return h;
  }
};

/// What an algorithm of the stand-in is: the problem it is for, and what it needs.
struct Algorithm {
  std::uint64_t fingerprint, workspace;
  std::uint32_t alignments[4];
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

/// x with the ten bits of mantissa that TF32 has.
float tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7F800000u) == 0x7F800000u) return x;
  return std::bit_cast<float>((bits + 0xFFFu + ((bits >> 13) & 1u)) & ~0x1FFFu);
}

float load(const void* from, cudaDataType_t type, std::int64_t at) {
  return type == CUDA_R_16BF ? compact::to_float(static_cast<const Bf16*>(from)[at])
                             : static_cast<const float*>(from)[at];
}
void store(void* to, cudaDataType_t type, std::int64_t at, float x) {
  if (type == CUDA_R_16BF)
    compact::put(static_cast<Bf16*>(to)[at], x);
  else
    static_cast<float*>(to)[at] = x;
}

/// op(matrix) in fp32, one column after another.
std::vector<float> packed(const void* from, const Layout& l, cublasOperation_t op, bool round) {
  std::vector<float> out(static_cast<std::size_t>(l.rows * l.cols));
  for (std::int64_t j = 0; j < l.cols; ++j)
    for (std::int64_t i = 0; i < l.rows; ++i) {
      const float x = load(from, l.type, j * l.ld + i);
      out[static_cast<std::size_t>(op == CUBLAS_OP_N ? j * l.rows + i : i * l.cols + j)] =
          round ? tf32(x) : x;
    }
  return out;
}

void multiply(const Problem& p, float alpha, const void* a, const void* b, float beta, const void* c,
              void* d) {
  const std::int64_t M = p.M(), N = p.N(), K = p.K();
  const bool round = p.description.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const std::vector<float> left = packed(a, p.a, p.description.left, round);
  const std::vector<float> right = packed(b, p.b, p.description.right, round);
  std::vector<float> sums(static_cast<std::size_t>(std::min<std::int64_t>(M, 1024)));
  for (std::int64_t first = 0; first < M; first += 1024) {  // a column of sums stays in the cache
    const std::int64_t rows = std::min<std::int64_t>(1024, M - first);
    for (std::int64_t j = 0; j < N; ++j) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (std::int64_t k = 0; k < K; ++k) {
        const float y = right[static_cast<std::size_t>(j * K + k)];
        const float* x = left.data() + k * M + first;
        for (std::int64_t i = 0; i < rows; ++i) sums[static_cast<std::size_t>(i)] += x[i] * y;
      }
      for (std::int64_t i = 0; i < rows; ++i) {
        // As in the library, a C times 0 is not read.
        const float old = beta == 0 ? 0 : beta * load(c, p.c.type, j * p.c.ld + first + i);
        store(d, p.d.type, j * p.d.ld + first + i, alpha * sums[static_cast<std::size_t>(i)] + old);
      }
    }
  }
}

bool aligned(const void* p, std::uint64_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; }

/// The value of an attribute, if it has the right size.
template <typename T>
cublasStatus_t take(T& to, const void* from, std::size_t bytes) {
  if (from == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE   ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                 : "a status of the emulation";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  auto made = std::make_unique<Description>();
  made->compute = compute;
  made->scale = scale;
  *description = made.release();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete &of(description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) return take(of(description).left, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) return take(of(description).right, value, bytes);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  auto made = std::make_unique<Layout>();
  made->type = type;
  made->rows = static_cast<std::int64_t>(rows);
  made->cols = static_cast<std::int64_t>(cols);
  made->ld = ld;
  *layout = made.release();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &of(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new Preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete &of(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  Preference& p = of(preference);
  std::uint32_t schemes = 0;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(p.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(schemes, value, bytes);  // there is one order of sums here
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(p.alignments[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(p.alignments[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(p.alignments[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(p.alignments[3], value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *count = 0;
  const Problem problem{of(description), of(a), of(b), of(c), of(d)};
  if (const cublasStatus_t status = problem.status(); status != CUBLAS_STATUS_SUCCESS) return status;
  const Preference& p = of(preference);
  Algorithm algorithm{problem.fingerprint(), std::min<std::uint64_t>(p.workspace, 65536), {}};
  const Layout* layouts[4] = {&problem.a, &problem.b, &problem.c, &problem.d};
  for (int i = 0; i < 4; ++i) {
    // Without a promise of the alignment of one element there is no kernel.
    if (!std::has_single_bit(p.alignments[i])) return CUBLAS_STATUS_INVALID_VALUE;
    if (p.alignments[i] < size_of(layouts[i]->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    algorithm.alignments[i] = p.alignments[i];
  }
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof(algorithm));
  results[0].workspaceSize = algorithm.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d, cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t* algorithm_of_problem, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const Problem problem{of(description), of(layout_a), of(layout_b), of(layout_c), of(layout_d)};
  if (const cublasStatus_t status = problem.status(); status != CUBLAS_STATUS_SUCCESS) return status;
  if (alpha == nullptr || beta == nullptr || algorithm_of_problem == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  Algorithm algorithm;
  std::memcpy(&algorithm, algorithm_of_problem, sizeof(algorithm));
  if (algorithm.fingerprint != problem.fingerprint()) return CUBLAS_STATUS_NOT_SUPPORTED;
  const void* operands[4] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (operands[i] == nullptr || !aligned(operands[i], algorithm.alignments[i]))
      return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace_bytes < algorithm.workspace || workspace == nullptr || !aligned(workspace, 256))
    return CUBLAS_STATUS_INVALID_VALUE;
  // In place or apart, nothing between.
  if (c == d && problem.c.ld != problem.d.ld) return CUBLAS_STATUS_INVALID_VALUE;
  float by = 0, keep = 0;
  std::memcpy(&by, alpha, sizeof(by));
  std::memcpy(&keep, beta, sizeof(keep));
  compact::cuda::emulation::enqueue(stream, [=] {
    // A workspace that something else lies in shows.
    std::memset(workspace, 0xFF, algorithm.workspace);
    multiply(problem, by, a, b, keep, c, d);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
