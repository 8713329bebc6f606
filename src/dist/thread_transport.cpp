#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "compact/core/error.h"
#include "transport.h"
#include "waiting.h"

namespace compact {

namespace {

/// A message that its sender has made ready; the receiver copies it.
struct Posted {
  const void* data = nullptr;
  std::int64_t bytes = 0;
  bool taken = false;
};

/// What the ranks of a process share.
struct Group {
  explicit Group(int size_) : size(size_) {}
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Posted>>> posted;  // by (from, to), in order
  int failed = 0;  // the exit code that a rank has ended all with
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  RankPlace place() const override { return {rank_, group_->size, rank_, group_->size}; }

  void exchange(std::span<const Message> sends, std::span<const Message> receives) override {
    std::vector<std::shared_ptr<Posted>> sent;
    Waiting waiting(patience_, longest_);
    std::unique_lock lock(group_->mutex);
    for (const Message& m : sends) {
      sent.push_back(std::make_shared<Posted>(Posted{m.data, m.bytes}));
      group_->posted[{rank_, m.peer}].push_back(sent.back());
    }
    group_->changed.notify_all();
    for (const Message& m : receives) {
      auto& from = group_->posted[{m.peer, rank_}];
      wait(lock, waiting, m.peer, [&] { return !from.empty(); });
      const std::shared_ptr<Posted> message = from.front();
      from.pop_front();
      require(message->bytes == m.bytes, "ThreadTransport", "ranks disagree about the size of a message");
      lock.unlock();
      std::memcpy(m.data, message->data, static_cast<std::size_t>(m.bytes));
      lock.lock();
      message->taken = true;
      group_->changed.notify_all();
    }
    for (std::size_t i = 0; i < sent.size(); ++i)
      wait(lock, waiting, sends[i].peer, [&] { return sent[i]->taken; });
  }

  void set_patience(Patience patience) override { patience_ = std::move(patience); }

  [[noreturn]] void fail(int code, const std::string& text) override {
    {
      const std::lock_guard lock(group_->mutex);
      group_->failed = code;
    }
    group_->changed.notify_all();
    if (code == 2) throw InputError(text);
    throw RunError(text);
  }

 private:
  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, Waiting& waiting, int peer, Condition condition) {
    while (true) {
      if (group_->failed != 0) throw SaidElsewhere(group_->failed);
      if (condition()) return;
      if (waiting.too_long()) {
        lock.unlock();
        fail(1,
             fmt::format("rank {} waits for rank {} since {:.0f} seconds", rank_, peer, waiting.seconds()));
      }
      group_->changed.wait_for(lock, std::chrono::milliseconds(50));
    }
  }

  std::shared_ptr<Group> group_;
  int rank_;
  Patience patience_;
  double longest_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size) {
  const auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int rank = 0; rank < size; ++rank)
    all.push_back(make_host_communicator(std::make_unique<ThreadTransport>(group, rank)));
  return all;
}

}  // namespace compact
