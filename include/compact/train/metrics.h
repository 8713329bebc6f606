#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace compact {

/// metrics.jsonl: one JSON object a line, each flushed as it is written (design, section 5). A number that is
/// not finite is written as null.
class MetricsFile {
 public:
  /// Opens for appending. Throws RunError.
  explicit MetricsFile(const std::string& path);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void write(const nlohmann::ordered_json& event);

 private:
  std::string path_;
  int fd_ = -1;
};

/// Drops every event after `step` and a half-written last line, so that a resumed run continues the file.
void cut_metrics(const std::string& path, std::int64_t step);

}  // namespace compact
