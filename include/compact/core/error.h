#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace compact {

/// Something the user gave is wrong (a file, a key, a value). The program ends with exit code 2.
/// The message is one sentence: what, where, expected and found, what to do.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A run failed although its input was fine (disk full, out of memory, non-finite loss). Exit code 1.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws InputError with a formatted message.
template <typename... Args>
[[noreturn]] void input_error(fmt::format_string<Args...> text, Args&&... args) {
  throw InputError(fmt::format(text, std::forward<Args>(args)...));
}

/// Throws RunError with a formatted message.
template <typename... Args>
[[noreturn]] void run_error(fmt::format_string<Args...> text, Args&&... args) {
  throw RunError(fmt::format(text, std::forward<Args>(args)...));
}

/// A broken rule of the engine itself: a bug, never the user's fault. Throws std::logic_error.
[[noreturn]] void bug(const std::string& text);

/// Throws std::logic_error naming `op` when `condition` is false; used for shape checks of ops.
inline void require(bool condition, const char* op, const char* what) {
  if (!condition) bug(std::string(op) + ": " + what);
}

}  // namespace compact
