#include "compact/data/loader.h"

#include <pthread.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "compact/core/error.h"
#include "compact/core/philox.h"

namespace compact {

std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::uint32_t epoch, std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  // Fisher-Yates from the end. Draw d uses half d mod 2 of Philox block d / 2: 64 bits, multiplied by the
  // number of choices and cut to its high half, so no choice is favoured by more than 2^-64 times their
  // number.
  std::array<std::uint32_t, 4> words{};
  std::uint64_t draw = 0;
  for (std::int64_t i = count - 1; i > 0; --i, ++draw) {
    if (draw % 2 == 0)
      words = philox({static_cast<std::uint32_t>(draw / 2), static_cast<std::uint32_t>(draw / 2 >> 32), epoch,
                      stream_word(Stream::Order, 0)},
                     seed);
    const std::size_t half = draw % 2 * 2;
    const std::uint64_t bits = words[half] | static_cast<std::uint64_t>(words[half + 1]) << 32;
    const auto choices = static_cast<std::uint64_t>(i) + 1;
    const auto j = static_cast<std::size_t>(static_cast<unsigned __int128>(bits) * choices >> 64);
    std::swap(order[static_cast<std::size_t>(i)], order[j]);
  }
  return order;
}

// One thread that reads one step ahead: it fills `batch`, next() takes it, and so on.
struct Loader::Reader {
  std::shared_ptr<const Windows> windows;
  std::uint64_t seed;
  std::int64_t step = 0, own = 0;  // sequences of a step, and of this rank's part of it

  std::mutex mutex;
  std::condition_variable changed;
  bool ready = false, stop = false;
  StepBatch batch;
  std::exception_ptr error;

  bool first_call = true;
  double waited = 0.0;
  std::thread thread;

  StepBatch read(std::int64_t first_sample, std::vector<std::int64_t>& order,
                 std::int64_t& order_epoch) const {
    const std::int64_t T = windows->T(), count = windows->count();
    StepBatch b;
    b.sequences = own;
    b.first_sample = first_sample;
    b.inputs.resize(static_cast<std::size_t>(own * T));
    b.labels.resize(b.inputs.size());
    for (std::int64_t k = 0; k < own; ++k) {
      const std::int64_t sample = first_sample + k, epoch = sample / count;
      if (epoch != order_epoch) {
        order = epoch_order(seed, static_cast<std::uint32_t>(epoch), count);
        order_epoch = epoch;
      }
      windows->read(order[static_cast<std::size_t>(sample % count)], b.inputs.data() + k * T,
                    b.labels.data() + k * T);
    }
    for (const std::int32_t label : b.labels) b.targets += label >= 0;
    return b;
  }

  void run(std::int64_t sample) {
    std::vector<std::int64_t> order;
    std::int64_t order_epoch = -1;
    for (;;) {
      StepBatch next;
      std::exception_ptr failed;
      try {
        next = read(sample, order, order_epoch);
      } catch (...) {
        failed = std::current_exception();
      }
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !ready || stop; });
      if (stop) return;
      batch = std::move(next);
      error = failed;
      ready = true;
      changed.notify_all();
      if (failed) return;
      sample += step;
    }
  }
};

Loader::Loader(std::shared_ptr<const Windows> windows, std::uint64_t seed, std::int64_t sequences_per_step,
               std::int64_t first_sample, LoaderShare share)
    : reader_(std::make_unique<Reader>()) {
  if (sequences_per_step <= 0 || first_sample < 0 || sequences_per_step % share.ranks != 0)
    bug(fmt::format("Loader: {} sequences for {} ranks from sample {}", sequences_per_step, share.ranks,
                    first_sample));
  reader_->windows = std::move(windows);
  reader_->seed = seed;
  reader_->step = sequences_per_step;
  reader_->own = sequences_per_step / share.ranks;
  first_sample += share.rank * reader_->own;
  // Signals are for the main thread: the reader starts with all of them blocked.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    reader_->thread = std::thread([r = reader_.get(), first_sample] { r->run(first_sample); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Loader::~Loader() {
  {
    const std::lock_guard lock(reader_->mutex);
    reader_->stop = true;
  }
  reader_->changed.notify_all();
  reader_->thread.join();
}

StepBatch Loader::next() {
  Reader& r = *reader_;
  std::unique_lock lock(r.mutex);
  if (!r.ready) {
    const auto start = std::chrono::steady_clock::now();
    r.changed.wait(lock, [&] { return r.ready; });
    if (!r.first_call)
      r.waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  r.first_call = false;
  if (r.error) std::rethrow_exception(r.error);
  r.ready = false;
  r.changed.notify_all();
  return std::move(r.batch);
}

double Loader::waited_seconds() const { return reader_->waited; }

}  // namespace compact
