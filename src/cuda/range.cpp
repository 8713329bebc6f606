#include "compact/cuda/range.h"

#include <nvtx3/nvToolsExt.h>

namespace compact::cuda {

Range::Range(const char* name) { nvtxRangePushA(name); }
Range::~Range() { nvtxRangePop(); }

}  // namespace compact::cuda
