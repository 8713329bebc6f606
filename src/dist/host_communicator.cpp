#include <omp.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "compact/core/error.h"
#include "compact/dist/rows.h"
#include "compact/kernels/piece_sum.h"
#include "transport.h"

namespace compact {

namespace {

/// What is done with tensors while the rank computes: one thread that takes one job after another.
class Worker {
 public:
  ~Worker() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void push(std::function<void()> job) {
    if (!thread_.joinable()) start();
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_all();
  }

  /// Returns when all jobs are done; throws what the first of them threw that failed.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.empty() && !busy_; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  // Signals are for the main thread: the worker starts with all of them blocked.
  void start() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void run() {
    omp_set_num_threads(1);
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      std::exception_ptr failed;
      try {
        job();
      } catch (...) {
        failed = std::current_exception();
      }
      lock.lock();
      busy_ = false;
      if (failed) {
        if (!error_) error_ = failed;
        jobs_.clear();
      }
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::exception_ptr error_;
  bool busy_ = false, stop_ = false;
  std::thread thread_;
};

/// Adds its lifetime to `seconds`.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Elements [from, from + count) of every rank's own rows of `tensor`, as far as it has them.
struct Part {
  Tensor tensor;          // as [elements]
  std::vector<Rows> own;  // of each rank, in elements
  std::int64_t from = 0, count = 0;

  Tensor of(int rank) const {
    const Rows& mine = own[static_cast<std::size_t>(rank)];
    const std::int64_t begin = std::min(from, mine.count);
    return tensor.slice(mine.first + begin, std::min(from + count, mine.count) - begin);
  }
};

class HostCommunicator final : public Communicator {
 public:
  explicit HostCommunicator(std::unique_ptr<Transport> transport)
      : transport_(std::move(transport)), place_(transport_->place()) {}

  RankPlace place() const override { return place_; }

  void sum(std::span<double> values) override {
    const Stopwatch watch(waited_);
    worker_.wait();  // the transport takes calls from one thread at a time, and messages match in their order
    // By way of rank 0, which so knows who is missing.
    const std::size_t n = values.size();
    const auto bytes = static_cast<std::int64_t>(n * sizeof(double));
    std::vector<double> received(n * static_cast<std::size_t>(place_.size));
    std::vector<Message> there, back;
    if (place_.rank != 0) {
      there.push_back({0, values.data(), bytes});
      transport_->exchange(there, {});
      transport_->exchange({}, there);
      return;
    }
    for (int k = 1; k < place_.size; ++k) {
      there.push_back({k, received.data() + n * static_cast<std::size_t>(k), bytes});
      back.push_back({k, values.data(), bytes});
    }
    transport_->exchange({}, there);
    for (std::size_t k = 1; k < static_cast<std::size_t>(place_.size); ++k)
      for (std::size_t i = 0; i < n; ++i) values[i] += received[k * n + i];
    transport_->exchange(back, {});
  }

  std::vector<std::string> gather_texts(const std::string& text) override {
    const std::vector<std::size_t> sizes = sizes_of_all(text.size());
    std::vector<std::string> all;
    for (const std::size_t size : sizes) all.emplace_back(size, '\0');
    all[static_cast<std::size_t>(place_.rank)] = text;
    std::vector<Message> sends, receives;
    for (int k = 0; k < place_.size; ++k) {
      if (k == place_.rank) continue;
      std::string& mine = all[static_cast<std::size_t>(place_.rank)];
      std::string& theirs = all[static_cast<std::size_t>(k)];
      sends.push_back({k, mine.data(), static_cast<std::int64_t>(mine.size())});
      receives.push_back({k, theirs.data(), static_cast<std::int64_t>(theirs.size())});
    }
    transport_->exchange(sends, receives);
    return all;
  }

  std::vector<std::byte> collect(std::span<const std::byte> bytes) override {
    const std::vector<std::size_t> sizes = sizes_of_all(bytes.size());
    if (place_.rank != 0) {
      // A message is written to only where it is received.
      const Message mine{0, const_cast<std::byte*>(bytes.data()), static_cast<std::int64_t>(bytes.size())};
      transport_->exchange({&mine, 1}, {});
      return {};
    }
    std::vector<std::byte> all(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    std::copy(bytes.begin(), bytes.end(), all.begin());
    std::vector<Message> receives;
    std::size_t at = bytes.size();
    for (int k = 1; k < place_.size; ++k) {
      const std::size_t size = sizes[static_cast<std::size_t>(k)];
      receives.push_back({k, all.data() + at, static_cast<std::int64_t>(size)});
      at += size;
    }
    transport_->exchange({}, receives);
    return all;
  }

  void reserve(Context& context, std::int64_t bucket_bytes) override {
    if (place_.size == 1 || context.on_cuda()) return;
    const std::int64_t least = Arena::kAlignment * place_.size, most = std::int64_t{1} << 30;
    room_ = std::clamp(bucket_bytes, least, most) / Arena::kAlignment * Arena::kAlignment;
    received_ = context.arena.persistent("received from ranks", {room_ / size_of(DType::F32)}, DType::F32,
                                         Category::Workspace);
  }

  void all_reduce(Context& context, std::span<const Tensor> tensors) override {
    reduce(context, tensors);
    gather(context, tensors);
  }

  void reduce(Context& context, std::span<const Tensor> tensors) override {
    queue(context, tensors, [this](std::span<const Part> parts) { reduce_parts(parts); });
  }

  void gather(Context& context, std::span<const Tensor> tensors) override {
    queue(context, tensors, [this](std::span<const Part> parts) { gather_parts(parts); });
  }

  void wait(Context&) override {
    const Stopwatch watch(waited_);
    worker_.wait();
  }

  void set_patience(Patience patience) override { transport_->set_patience(std::move(patience)); }
  [[noreturn]] void fail(int code, const std::string& text) override {
    transport_->fail(code, text);
    std::abort();  // it does not return, which a virtual function cannot tell the compiler
  }

 private:
  /// The `mine` of every rank.
  std::vector<std::size_t> sizes_of_all(std::size_t mine) {
    std::vector<double> sizes(static_cast<std::size_t>(place_.size));
    sizes[static_cast<std::size_t>(place_.rank)] = static_cast<double>(mine);
    sum(sizes);
    return {sizes.begin(), sizes.end()};
  }

  template <typename Exchange>
  void queue(Context& context, std::span<const Tensor> tensors, Exchange exchange) {
    for (const Tensor& t : tensors) {
      require(t.contiguous(), "Communicator", "tensors of ranks must be contiguous");
      sent_ += t.bytes();
    }
    if (context.planning() || place_.size == 1) return;
    require(room_ > 0, "Communicator", "nothing was reserved for what is received");
    for (std::vector<Part>& parts : split(tensors))
      worker_.push([exchange, parts = std::move(parts)] { exchange(parts); });
  }

  /// Bytes of what is received of a part: a piece of `count` elements from every other rank.
  std::int64_t room_of(const Tensor& t, std::int64_t count) const {
    const std::int64_t bytes = count * size_of(t.dtype);
    return (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment * (place_.size - 1);
  }

  /// Cuts tensors into rounds whose pieces have room together.
  std::vector<std::vector<Part>> split(std::span<const Tensor> tensors) const {
    std::vector<std::vector<Part>> rounds(1);
    std::int64_t left = room_;
    const auto next_round = [&] {
      rounds.emplace_back();
      left = room_;
    };
    for (const Tensor& t : tensors) {
      Part whole{t.reshaped({t.elements()}), {}, 0, 0};
      std::int64_t most = 0;  // elements that a rank has
      for (int k = 0; k < place_.size; ++k) {
        const Rows rows = rows_of(t, k, place_.size);
        whole.own.push_back({rows.first * t.cols(), rows.count * t.cols()});
        most = std::max(most, whole.own.back().count);
      }
      const std::int64_t step = Arena::kAlignment / size_of(t.dtype);
      for (std::int64_t at = 0; at < most;) {
        const std::int64_t fits = left / (place_.size - 1) / Arena::kAlignment * step;
        if (fits == 0) {
          next_round();
          continue;
        }
        Part part = whole;
        part.from = at;
        part.count = std::min(fits, most - at);
        at += part.count;
        left -= room_of(t, part.count);
        rounds.back().push_back(std::move(part));
      }
    }
    return rounds;
  }

  void reduce_parts(std::span<const Part> parts) {
    std::vector<Message> sends, receives;
    auto* free = received_.as<std::byte>();
    std::vector<Tensor> pieces;  // of the ranks in order, of each part in turn
    for (const Part& part : parts)
      for (int k = 0; k < place_.size; ++k) {
        const Tensor mine = part.of(place_.rank);
        if (k == place_.rank) {
          pieces.push_back(mine);
          continue;
        }
        const Tensor theirs = part.of(k);
        if (theirs.elements() > 0) sends.push_back({k, theirs.data, theirs.bytes()});
        pieces.emplace_back(free, mine.shape, mine.dtype);
        if (mine.elements() > 0) receives.push_back({k, free, mine.bytes()});
        free += room_of(part.tensor, part.count) / (place_.size - 1);
      }
    transport_->exchange(sends, receives);
    const auto ranks = static_cast<std::size_t>(place_.size);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Tensor mine = parts[i].of(place_.rank);
      if (mine.elements() > 0) sum_pieces(std::span(pieces).subspan(i * ranks, ranks), mine);
    }
  }

  void gather_parts(std::span<const Part> parts) {
    std::vector<Message> sends, receives;
    for (const Part& part : parts) {
      const Tensor mine = part.of(place_.rank);
      for (int k = 0; k < place_.size; ++k) {
        if (k == place_.rank) continue;
        const Tensor theirs = part.of(k);
        if (mine.elements() > 0) sends.push_back({k, mine.data, mine.bytes()});
        if (theirs.elements() > 0) receives.push_back({k, theirs.data, theirs.bytes()});
      }
    }
    transport_->exchange(sends, receives);
  }

  std::unique_ptr<Transport> transport_;
  RankPlace place_;
  std::int64_t room_ = 0;  // bytes of received_
  Tensor received_;        // [room / 4], bytes in fact
  Worker worker_;          // the last member: it ends before what it uses
};

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(std::unique_ptr<Transport> transport) {
  return std::make_unique<HostCommunicator>(std::move(transport));
}

}  // namespace compact
