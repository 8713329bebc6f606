#pragma once

namespace compact::cuda {

/// A named range in NVTX profiles (Nsight), from construction to end. Costs nothing where nothing records.
class Range {
 public:
  explicit Range(const char* name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace compact::cuda
