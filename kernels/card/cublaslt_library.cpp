#include <cublasLt.h>
#include <dlfcn.h>

#include "compact/core/error.h"

/// cuBLASLt, loaded when the first handle is made: it is half a gigabyte, which a run on the CPU shall
/// neither wait for nor keep in memory. The functions are those of its header; each passes its call on.
#define COMPACT_TEXT_OF(number) #number
#define COMPACT_TEXT(macro) COMPACT_TEXT_OF(macro)
#define COMPACT_LIBRARY "libcublasLt.so." COMPACT_TEXT(CUBLAS_VER_MAJOR)

namespace {

void* library() {
  static void* const handle = [] {
    // First where the system looks (LD_LIBRARY_PATH among it), then where the build found it.
    void* found = dlopen(COMPACT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (found == nullptr) found = dlopen(COMPACT_CUDA_LIBRARIES "/" COMPACT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (found == nullptr)
      compact::run_error(
          "device \"cuda\": {} was not found; install cuBLAS of CUDA {}, or name its folder in "
          "LD_LIBRARY_PATH",
          COMPACT_LIBRARY, CUBLAS_VER_MAJOR);
    return found;
  }();
  return handle;
}

template <typename Function>
Function* function(const char* name) {
  void* const found = dlsym(library(), name);
  if (found == nullptr) compact::run_error("cuBLASLt has no function {}; it is of another version", name);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

#define COMPACT_PASS_ON(name, arguments)                       \
  static auto* const passed = function<decltype(name)>(#name); \
  return passed arguments

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* a) { COMPACT_PASS_ON(cublasLtCreate, (a)); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t a) { COMPACT_PASS_ON(cublasLtDestroy, (a)); }
const char* cublasLtGetStatusName(cublasStatus_t a) { COMPACT_PASS_ON(cublasLtGetStatusName, (a)); }
cublasStatus_t cublasLtMatmul(cublasLtHandle_t a, cublasLtMatmulDesc_t b, const void* c, const void* d,
                              cublasLtMatrixLayout_t e, const void* f, cublasLtMatrixLayout_t g,
                              const void* h, const void* i, cublasLtMatrixLayout_t j, void* k,
                              cublasLtMatrixLayout_t l, const cublasLtMatmulAlgo_t* m, void* n, size_t o,
                              cudaStream_t p) {
  COMPACT_PASS_ON(cublasLtMatmul, (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p));
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t a, cublasLtMatmulDesc_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatrixLayout_t e, cublasLtMatrixLayout_t f,
                                              cublasLtMatmulPreference_t g, int h,
                                              cublasLtMatmulHeuristicResult_t* i, int* j) {
  COMPACT_PASS_ON(cublasLtMatmulAlgoGetHeuristic, (a, b, c, d, e, f, g, h, i, j));
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* a, cublasComputeType_t b, cudaDataType_t c) {
  COMPACT_PASS_ON(cublasLtMatmulDescCreate, (a, b, c));
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t a) {
  COMPACT_PASS_ON(cublasLtMatmulDescDestroy, (a));
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t a, cublasLtMatmulDescAttributes_t b,
                                              const void* c, size_t d) {
  COMPACT_PASS_ON(cublasLtMatmulDescSetAttribute, (a, b, c, d));
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* a) {
  COMPACT_PASS_ON(cublasLtMatmulPreferenceCreate, (a));
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t a) {
  COMPACT_PASS_ON(cublasLtMatmulPreferenceDestroy, (a));
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t a,
                                                    cublasLtMatmulPreferenceAttributes_t b, const void* c,
                                                    size_t d) {
  COMPACT_PASS_ON(cublasLtMatmulPreferenceSetAttribute, (a, b, c, d));
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* a, cudaDataType b, uint64_t c, uint64_t d,
                                          int64_t e) {
  COMPACT_PASS_ON(cublasLtMatrixLayoutCreate, (a, b, c, d, e));
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t a) {
  COMPACT_PASS_ON(cublasLtMatrixLayoutDestroy, (a));
}

}  // extern "C"
