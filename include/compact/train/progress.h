#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace spdlog {
class logger;
}

namespace compact {

/// What the run tells a person on stdout: on a terminal one line that is written over (plain carriage return,
/// no escape codes), elsewhere a plain line now and then. Everything but the live line also goes to run.log.
class Progress {
 public:
  /// `log_path` may be empty: no log file. `live`: the standard output may be a terminal; under a launcher it
  /// looks like one (Open MPI gives its processes terminals of its own) whatever is behind it.
  explicit Progress(const std::string& log_path, bool live = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// A line that stays.
  void say(const std::string& line);
  /// The present state; shown live on a terminal, else at most once every `kPlainSeconds` or when
  /// `important`.
  void state(const std::string& line, bool important);

 private:
  static constexpr double kPlainSeconds = 10;
  void clear_live_line();
  void log(const std::string& line);

  bool terminal_ = false;
  std::size_t live_width_ = 0;
  std::chrono::steady_clock::time_point last_{};
  bool any_ = false;
  std::unique_ptr<spdlog::logger> log_;
};

/// "2 h 05 min", "3 min 20 s", "12 s"
std::string duration_text(double seconds);

}  // namespace compact
