#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace compact::cuda {

/// True in a build with the CUDA backend (or its emulation).
bool is_built();

/// What `compact` says about a card at the start of a run.
struct DeviceInfo {
  std::string name;          ///< "NVIDIA H200"
  std::string pci_bus;       ///< "0000:3B:00.0": which card of the machine it is
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  std::int64_t memory = 0;       ///< bytes in all
  std::int64_t free_memory = 0;  ///< bytes free now
  int driver = 0, runtime = 0;   ///< CUDA versions, 1000 · major + 10 · minor
};

/// Devices that the driver shows; 0 without any. Throws RunError with what is wrong where there is no driver
/// or one too old for this build.
int device_count();
/// Throws InputError where there is no such device, RunError as device_count.
DeviceInfo device_info(int device);
/// "NVIDIA H200, compute capability 9.0, 139.8 GiB, driver CUDA 13.0, runtime 13.0"
std::string describe(const DeviceInfo& info);

/// Dense peaks of the card by its data sheet, operations a second of products of bf16 (accumulating fp32) and
/// of fp32 without tensor cores. Empty for a card that the table does not have.
struct DevicePeaks {
  double bf16 = 0, fp32 = 0;
};
std::optional<DevicePeaks> device_peaks(const std::string& name);

}  // namespace compact::cuda
