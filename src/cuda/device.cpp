#include "compact/cuda/device.h"

#include <cuda_runtime_api.h>

#include <array>

#include "compact/core/error.h"
#include "compact/cuda/check.h"

namespace compact::cuda {

namespace {

/// The least architecture that kernels are compiled for (CMakeLists.txt), 10 · major + minor. Newer ones run
/// the PTX.
constexpr int kOldestArchitecture = 80;

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

bool is_built() { return true; }

int device_count() {
  int driver = 0, count = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  if (driver == 0)
    run_error("device \"cuda\": this machine has no NVIDIA driver; install one, or use device \"cpu\"");
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaErrorNoDevice) return 0;
  if (result == cudaErrorInsufficientDriver)
    run_error(
        "device \"cuda\": the NVIDIA driver is too old: it supports CUDA {}, this build needs {}; update the "
        "driver, or build compact with an older CUDA toolkit",
        version_text(driver), version_text(CUDART_VERSION));
  check(result, "cudaGetDeviceCount");
  return count;
}

DeviceInfo device_info(int device) {
  const int count = device_count();
  if (count == 0)
    run_error(
        "device \"cuda\": the driver shows no CUDA device; see whether nvidia-smi lists one and what "
        "CUDA_VISIBLE_DEVICES says, or use device \"cpu\"");
  if (device < 0 || device >= count)
    input_error("cuda.device is {}, but the driver shows {} CUDA device{}, counted from 0", device, count,
                count == 1 ? "" : "s");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  DeviceInfo info;
  info.name = properties.name;
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device), "cudaDeviceGetPCIBusId");
  info.pci_bus = bus.data();
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  if (10 * info.major + info.minor < kOldestArchitecture)
    run_error(
        "device \"cuda\": {} has compute capability {}.{}, and compact needs {}.{} or newer (bf16 tensor "
        "cores); use device \"cpu\"",
        info.name, info.major, info.minor, kOldestArchitecture / 10, kOldestArchitecture % 10);
  check(cudaSetDevice(device), "cudaSetDevice");
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  info.free_memory = static_cast<std::int64_t>(free);
  info.memory = static_cast<std::int64_t>(total);
  check(cudaDriverGetVersion(&info.driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&info.runtime), "cudaRuntimeGetVersion");
  return info;
}

std::string describe(const DeviceInfo& info) {
  return fmt::format("{}, compute capability {}.{}, {:.1f} GiB, driver CUDA {}, runtime {}", info.name,
                     info.major, info.minor, static_cast<double>(info.memory) / (1 << 30),
                     version_text(info.driver), version_text(info.runtime));
}

}  // namespace compact::cuda
