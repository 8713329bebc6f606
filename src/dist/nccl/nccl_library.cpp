#include "nccl_library.h"

#include <dlfcn.h>
#include <nccl.h>

#include "compact/core/error.h"

/// NCCL, loaded when several ranks with a card each start; a program for one card starts without it. The
/// functions are those of its header; each passes its call on.
namespace compact {

namespace {

constexpr const char* kLibrary = "libnccl.so.2";
constexpr int kOldest = NCCL_VERSION(2, 18, 0);  // with calls that do not block, in every one of them

void* library() {
  static void* const handle = [] {
    // First where the system looks (LD_LIBRARY_PATH among it), then where the build found it.
    void* found = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    const std::string folder = COMPACT_NCCL_LIBRARIES;
    if (found == nullptr && !folder.empty())
      found = dlopen((folder + "/" + kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (found == nullptr)
      input_error(
          "several ranks with device \"cuda\": {} was not found; install NCCL of CUDA {}, or name its folder "
          "in LD_LIBRARY_PATH",
          kLibrary, CUDART_VERSION / 1000);
    return found;
  }();
  return handle;
}

template <typename Function>
Function* function(const char* name) {
  void* const found = dlsym(library(), name);
  if (found == nullptr) run_error("NCCL has no function {}; it is of another version", name);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

void load_nccl() {
  int version = 0;
  ncclGetVersion(&version);
  if (version < kOldest)
    input_error("several ranks with device \"cuda\": {} is NCCL {}.{}; 2.18 or newer is needed", kLibrary,
                version / 10000, version / 100 % 100);
}

}  // namespace compact

#define COMPACT_PASS_ON(name, arguments)                                \
  static auto* const passed = compact::function<decltype(name)>(#name); \
  return passed arguments

extern "C" {

ncclResult_t ncclGetVersion(int* a) { COMPACT_PASS_ON(ncclGetVersion, (a)); }
ncclResult_t ncclGetUniqueId(ncclUniqueId* a) { COMPACT_PASS_ON(ncclGetUniqueId, (a)); }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* a, int b, ncclUniqueId c, int d, ncclConfig_t* e) {
  COMPACT_PASS_ON(ncclCommInitRankConfig, (a, b, c, d, e));
}
ncclResult_t ncclCommDestroy(ncclComm_t a) { COMPACT_PASS_ON(ncclCommDestroy, (a)); }
ncclResult_t ncclCommAbort(ncclComm_t a) { COMPACT_PASS_ON(ncclCommAbort, (a)); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t a, ncclResult_t* b) {
  COMPACT_PASS_ON(ncclCommGetAsyncError, (a, b));
}
const char* ncclGetErrorString(ncclResult_t a) { COMPACT_PASS_ON(ncclGetErrorString, (a)); }
const char* ncclGetLastError(ncclComm_t a) { COMPACT_PASS_ON(ncclGetLastError, (a)); }
ncclResult_t ncclGroupStart() { COMPACT_PASS_ON(ncclGroupStart, ()); }
ncclResult_t ncclGroupEnd() { COMPACT_PASS_ON(ncclGroupEnd, ()); }
ncclResult_t ncclAllReduce(const void* a, void* b, size_t c, ncclDataType_t d, ncclRedOp_t e, ncclComm_t f,
                           cudaStream_t g) {
  COMPACT_PASS_ON(ncclAllReduce, (a, b, c, d, e, f, g));
}
ncclResult_t ncclReduce(const void* a, void* b, size_t c, ncclDataType_t d, ncclRedOp_t e, int f,
                        ncclComm_t g, cudaStream_t h) {
  COMPACT_PASS_ON(ncclReduce, (a, b, c, d, e, f, g, h));
}
ncclResult_t ncclReduceScatter(const void* a, void* b, size_t c, ncclDataType_t d, ncclRedOp_t e,
                               ncclComm_t f, cudaStream_t g) {
  COMPACT_PASS_ON(ncclReduceScatter, (a, b, c, d, e, f, g));
}
ncclResult_t ncclBroadcast(const void* a, void* b, size_t c, ncclDataType_t d, int e, ncclComm_t f,
                           cudaStream_t g) {
  COMPACT_PASS_ON(ncclBroadcast, (a, b, c, d, e, f, g));
}
ncclResult_t ncclAllGather(const void* a, void* b, size_t c, ncclDataType_t d, ncclComm_t e, cudaStream_t f) {
  COMPACT_PASS_ON(ncclAllGather, (a, b, c, d, e, f));
}

}  // extern "C"
