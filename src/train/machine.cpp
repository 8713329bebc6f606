#include "compact/train/machine.h"

#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compact/core/error.h"
#include "compact/cuda/device.h"
#include "compact/cuda/queue.h"
#include "compact/io/file.h"
#include "compact/kernels/elementwise.h"
#include "compact/kernels/gemm.h"
#include "compact/kernels/global_norm.h"
#include "machine_card.h"

namespace compact {

int use_threads(std::int64_t wanted, int ranks_on_machine) {
  if (wanted == 0) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    const bool known = sched_getaffinity(0, sizeof(mask), &mask) == 0;
    wanted = std::max(1, (known ? CPU_COUNT(&mask) : 1) / std::max(1, ranks_on_machine));
  }
  omp_set_num_threads(static_cast<int>(wanted));
  return static_cast<int>(wanted);
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

namespace {

// A number after `key` in a file of "key: number kB" lines.
std::int64_t meminfo(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) {
      std::int64_t kib = 0;
      std::istringstream(line.substr(key.size() + 1)) >> kib;
      return kib * 1024;
    }
  return -1;
}

std::int64_t number_in(const char* path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  file >> value;  // "max" leaves -1: no limit
  return file ? value : -1;
}

}  // namespace

std::int64_t resident_peak_bytes() { return meminfo("/proc/self/status", "VmHWM"); }

std::int64_t available_bytes() {
  std::int64_t least = INT64_MAX;
  const auto limit = [&least](std::int64_t value) {
    if (value >= 0) least = std::min(least, value);
  };
  limit(meminfo("/proc/meminfo", "MemAvailable"));
  const std::int64_t group = number_in("/sys/fs/cgroup/memory.max");
  if (group >= 0) limit(std::max<std::int64_t>(0, group - number_in("/sys/fs/cgroup/memory.current")));
  rlimit address_space{};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY)
    limit(std::max<std::int64_t>(
        0, static_cast<std::int64_t>(address_space.rlim_cur) - meminfo("/proc/self/status", "VmSize")));
  return least;
}

void require_available(std::int64_t bytes, const std::string& table) {
  const std::int64_t available = available_bytes();
  if (bytes <= available) return;
  run_error(
      "not enough memory: the run needs {} bytes and {} are available. It needs\n{}Less is needed with "
      "memory.preset \"block\", a smaller batch.micro_batch, or optimizer.name \"compact\"; `compact plan` "
      "shows what "
      "each takes.",
      bytes, available, table);
}

namespace {

// The best of `times` runs of work worth `amount`, in units a second, after one that warms up.
template <typename Work>
double best_of(int times, double amount, Work&& work) {
  double best = 0;
  for (int i = 0; i <= times; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i > 0) best = std::max(best, amount / took.count());
  }
  return best;
}

}  // namespace

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

double measure_gemm_peak(DType type, cuda::Queue* queue) {
  if (queue != nullptr) return measure_gemm_peak_of_card(type, *queue);
  constexpr std::int64_t n = 1536;
  // Where bf16 products are computed in fp32, converted copies lie beside the operands.
  Arena arena(Device::Cpu, std::int64_t{128} << 20);
  Context context(arena);
  const Tensor a = arena.persistent("a", {n, n}, type, Category::Workspace);
  const Tensor b = arena.persistent("b", {n, n}, type, Category::Workspace);
  const Tensor c = arena.persistent("c", {n, n}, type, Category::Workspace);
  fill(context, a, 0.5f);
  fill(context, b, 0.25f);
  return best_of(6, 2.0 * n * n * n, [&] { gemm(context, a, Transpose::No, b, Transpose::No, c, false); });
}

double measure_memory_bandwidth(cuda::Queue* queue) {
  if (queue != nullptr) return measure_memory_bandwidth_of_card(*queue);
  constexpr std::int64_t rows = 1 << 15, cols = 1 << 10,
                         bytes = 4 * rows * cols;  // 128 MiB: no cache holds it
  Arena arena(Device::Cpu, 3 * bytes + Arena::kAlignment);
  Context context(arena);
  const Tensor a = arena.persistent("a", {rows, cols}, DType::F32, Category::Workspace);
  const Tensor b = arena.persistent("b", {rows, cols}, DType::F32, Category::Workspace);
  const Tensor c = arena.persistent("c", {rows, cols}, DType::F32, Category::Workspace);
  const Tensor norm = arena.persistent("norm", {1}, DType::F32, Category::Workspace);
  for (const Tensor& t : {a, b, c}) fill(context, t, 0.5f);
  const Tensor both[] = {a, b};
  // What is written but not read before costs a read all the same, which is not counted: so also in place.
  return std::max({best_of(4, 3.0 * bytes, [&] { add(context, a, b, c); }),
                   best_of(4, 3.0 * bytes, [&] { add(context, a, b, a); }),
                   best_of(4, 2.0 * bytes, [&] { global_norm(context, both, norm); })});
}

namespace {

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::string(cache) + "/compact";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/compact";
  return "";
}

// What `measure` gives for `what`, from the cache where that is not below `seen`.
double cached_speed(const std::string& what, double seen, const cuda::Queue* queue,
                    const std::function<double()>& measure) {
  const std::string key =
      queue != nullptr ? cuda::device_info(queue->options().device).name + ", " + what
                       : cpu_name() + ", " + what + ", threads " + std::to_string(omp_get_max_threads());
  const std::string folder = cache_folder(), path = folder + "/machine.json";
  nlohmann::json known = nlohmann::json::object();
  // The cache is a convenience: whatever is wrong with it, the speed is measured.
  if (!folder.empty() && access(path.c_str(), R_OK) == 0) {
    nlohmann::json read = nlohmann::json::parse(std::ifstream(path), nullptr, false);
    if (read.is_object()) known = std::move(read);
    if (known.contains(key) && known[key].is_number() && known[key].get<double>() >= std::max(seen, 1.0))
      return known[key].get<double>();
  }
  const double measured = measure();
  const double speed = std::max(seen, measured);
  if (measured == 0) return speed;
  known[key] = speed;
  if (!folder.empty()) {
    try {
      make_folders(folder);
      write_text_atomically(path, known.dump(1) + "\n");
    } catch (const RunError&) {
      // A home that cannot be written to only means measuring again next time.
    }
  }
  return speed;
}

}  // namespace

double gemm_peak(DType type, double seen, cuda::Queue* queue) {
  const bool tf32 = queue != nullptr && queue->options().tf32;
  const char* what = type == DType::BF16 ? "products bf16" : tf32 ? "products tf32" : "products fp32";
  return cached_speed(what, seen, queue, [type, queue] { return measure_gemm_peak(type, queue); });
}

double memory_bandwidth(double seen, cuda::Queue* queue) {
  return cached_speed("memory", seen, queue, [queue] { return measure_memory_bandwidth(queue); });
}

double reference_peak(DType type, double seen, cuda::Queue* queue) {
  if (queue != nullptr && !(type == DType::F32 && queue->options().tf32)) {
    const auto peaks = cuda::device_peaks(cuda::device_info(queue->options().device).name);
    if (peaks) return std::max(seen, type == DType::BF16 ? peaks->bf16 : peaks->fp32);
  }
  return gemm_peak(type, seen, queue);
}

}  // namespace compact
