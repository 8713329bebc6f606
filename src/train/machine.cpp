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
#include <nlohmann/json.hpp>
#include <sstream>

#include "compact/core/error.h"
#include "compact/io/file.h"
#include "compact/kernels/elementwise.h"
#include "compact/kernels/gemm.h"

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

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

namespace {

double measure_gemm_peak() {
  constexpr std::int64_t n = 1536;
  Arena arena(Device::Cpu, std::int64_t{64} << 20);
  Context context(arena);
  const Tensor a = arena.persistent("a", {n, n}, DType::F32, Category::Workspace);
  const Tensor b = arena.persistent("b", {n, n}, DType::F32, Category::Workspace);
  const Tensor c = arena.persistent("c", {n, n}, DType::F32, Category::Workspace);
  fill(context, a, 0.5f);
  fill(context, b, 0.25f);
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    const auto start = std::chrono::steady_clock::now();
    gemm(context, a, Transpose::No, b, Transpose::No, c, false);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2.0 * n * n * n / took.count());
  }
  return best;
}

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::string(cache) + "/compact";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/compact";
  return "";
}

}  // namespace

double gemm_peak(double seen) {
  const std::string key = cpu_name() + ", fp32, threads " + std::to_string(omp_get_max_threads());
  const std::string folder = cache_folder(), path = folder + "/gemm_peak.json";
  nlohmann::json known = nlohmann::json::object();
  // The cache is a convenience: whatever is wrong with it, the speed is measured.
  if (!folder.empty() && access(path.c_str(), R_OK) == 0) {
    nlohmann::json read = nlohmann::json::parse(std::ifstream(path), nullptr, false);
    if (read.is_object()) known = std::move(read);
    if (known.contains(key) && known[key].is_number() && known[key].get<double>() >= std::max(seen, 1.0))
      return known[key].get<double>();
  }
  const double peak = std::max(seen, measure_gemm_peak());
  known[key] = peak;
  if (!folder.empty()) {
    try {
      make_folders(folder);
      write_text_atomically(path, known.dump(1) + "\n");
    } catch (const RunError&) {
      // A home that cannot be written to only means measuring again next time.
    }
  }
  return peak;
}

}  // namespace compact
