#include "compact/train/progress.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "compact/core/error.h"

namespace compact {

Progress::Progress(const std::string& log_path, bool live) : terminal_(live && isatty(STDOUT_FILENO) == 1) {
  if (log_path.empty()) return;
  try {
    log_ = std::make_unique<spdlog::logger>("run",
                                            std::make_shared<spdlog::sinks::basic_file_sink_mt>(log_path));
  } catch (const spdlog::spdlog_ex& error) {
    run_error("{}: cannot be opened for writing: {}", log_path, error.what());
  }
  log_->set_pattern("%Y-%m-%d %H:%M:%S %v");
  log_->flush_on(spdlog::level::info);
  // The log only repeats what the metrics hold: a full disk is reported where it loses something.
  log_->set_error_handler([](const std::string&) {});
}

Progress::~Progress() { clear_live_line(); }

void Progress::clear_live_line() {
  if (live_width_ == 0) return;
  std::printf("\r%s\r", std::string(live_width_, ' ').c_str());
  std::fflush(stdout);
  live_width_ = 0;
}

void Progress::log(const std::string& line) {
  if (log_) log_->info("{}", line);
}

void Progress::say(const std::string& line) {
  clear_live_line();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  log(line);
}

void Progress::state(const std::string& line, bool important) {
  const auto now = std::chrono::steady_clock::now();
  const bool due = !any_ || important || std::chrono::duration<double>(now - last_).count() >= kPlainSeconds;
  if (due) {
    last_ = now;
    any_ = true;
    if (!terminal_) {
      say(line);
      return;
    }
    log(line);
  }
  if (!terminal_) return;
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  // A line longer than the terminal would wrap and could not be written over.
  const std::string shown = line.substr(0, known ? static_cast<std::size_t>(size.ws_col - 1) : 79);
  const std::size_t width = std::max(shown.size(), live_width_);
  std::printf("\r%-*s", static_cast<int>(width), shown.c_str());
  std::fflush(stdout);
  live_width_ = shown.size();
}

std::string duration_text(double seconds) {
  const auto s = static_cast<std::int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} s", s);
}

}  // namespace compact
