#include "compact/train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "compact/core/error.h"
#include "compact/io/file.h"

namespace compact {

MetricsFile::MetricsFile(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (fd_ < 0) run_error("{}: cannot be opened for writing: {}", path, std::strerror(errno));
}

MetricsFile::~MetricsFile() { close(fd_); }

void MetricsFile::write(const nlohmann::ordered_json& event) {
  // nlohmann writes NaN and infinity as null, which is the only JSON there is for them.
  const std::string line = event.dump() + "\n";
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) run_error("{}: cannot be written: {}", path_, std::strerror(errno));
    done += static_cast<std::size_t>(n);
  }
}

void cut_metrics(const std::string& path, std::int64_t step) {
  std::ifstream file(path);
  if (!file) return;
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("event")) continue;
    if (event.value("step", std::int64_t{0}) > step || event["event"] == "end") continue;
    kept += line + "\n";
  }
  write_text_atomically(path, kept);
}

}  // namespace compact
