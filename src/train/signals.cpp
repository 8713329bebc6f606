#include "compact/train/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace compact {

namespace {
// Handlers may touch nothing but lock-free atomics and write(2).
std::atomic<int> stops{0};
std::atomic<int> checkpoints{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_stop(int number) {
  if (stops.fetch_add(1) == 0) return;
  constexpr char text[] = "\ncompact: second signal, ended at once\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);
  _exit(128 + number);
}

// Through mpirun, which ends its processes by itself on the others; asked again it asks for nothing more.
void on_gentle_stop(int) {
  int none = 0;
  stops.compare_exchange_strong(none, 1);
}

void on_checkpoint(int) { checkpoints.fetch_add(1); }

void handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
}
}  // namespace

SignalScope::SignalScope() {
  stops = 0;
  checkpoints = 0;
  handle(SIGINT, on_stop);
  handle(SIGTERM, on_stop);
  handle(SIGHUP, on_stop);  // the terminal was closed
  handle(SIGUSR2, on_gentle_stop);
  handle(SIGUSR1, on_checkpoint);
}

SignalScope::~SignalScope() {
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) handle(number, SIG_DFL);
}

bool SignalScope::stop_requested() { return stops.load() > 0; }

bool SignalScope::take_checkpoint_request() { return checkpoints.exchange(0) > 0; }

}  // namespace compact
