#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "compact/core/error.h"
#include "compact/dist/communicator.h"
#include "src/dist/transport.h"

/// Ranks as threads of the test.
namespace compact::testing {

/// One communicator for each rank; a rank that waits longer than a test may last ends the test.
inline std::vector<std::unique_ptr<Communicator>> thread_ranks(int size, double patience = 60) {
  auto ranks = make_thread_communicators(size);
  for (const auto& rank : ranks) rank->set_patience({patience, {}});
  return ranks;
}

/// Runs `work` for every rank in a thread of its own, and returns what each threw (null: nothing). Where that
/// is not something that all ranks know of, it ends the waits of the others.
inline std::vector<std::exception_ptr> outcomes(const std::vector<std::unique_ptr<Communicator>>& ranks,
                                                const std::function<void(Communicator&)>& work) {
  std::vector<std::exception_ptr> thrown(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < ranks.size(); ++k)
    threads.emplace_back([&, k] {
      int code = 1;
      try {
        work(*ranks[k]);
        return;
      } catch (const SaidElsewhere&) {
        thrown[k] = std::current_exception();
        return;
      } catch (const KnownToAll<InputError>&) {
        thrown[k] = std::current_exception();
        return;
      } catch (const KnownToAll<RunError>&) {
        thrown[k] = std::current_exception();
        return;
      } catch (const InputError&) {
        thrown[k] = std::current_exception();
        code = 2;
      } catch (...) {
        thrown[k] = std::current_exception();
      }
      try {
        ranks[k]->fail(code, "the test of another rank failed");
      } catch (const std::exception&) {
      }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

/// The same where no rank may throw.
inline void on_ranks(const std::vector<std::unique_ptr<Communicator>>& ranks,
                     const std::function<void(Communicator&)>& work) {
  const std::vector<std::exception_ptr> thrown = outcomes(ranks, work);
  for (std::size_t k = 0; k < thrown.size(); ++k) {
    if (!thrown[k]) continue;
    try {
      std::rethrow_exception(thrown[k]);
    } catch (const SaidElsewhere&) {
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << k << " threw: " << error.what();
    }
  }
  EXPECT_TRUE(std::all_of(thrown.begin(), thrown.end(), [](const auto& t) { return t == nullptr; }));
}

inline void on_ranks(int size, const std::function<void(Communicator&)>& work) {
  on_ranks(thread_ranks(size), work);
}

/// What was thrown, as "run error: text", "input error: text", "said elsewhere: code", or nothing.
inline std::string told(const std::exception_ptr& thrown) {
  if (!thrown) return "";
  try {
    std::rethrow_exception(thrown);
  } catch (const SaidElsewhere& error) {
    return "said elsewhere: " + std::to_string(error.code);
  } catch (const InputError& error) {
    return std::string("input error: ") + error.what();
  } catch (const RunError& error) {
    return std::string("run error: ") + error.what();
  } catch (const std::exception& error) {
    return std::string("exception: ") + error.what();
  }
}

/// A transport of copies that counts what is sent: nothing of the memory of a rank is seen by another.
class MailTransport final : public Transport {
 public:
  struct Office {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> letters;  // by (from, to)
    std::int64_t bytes = 0, messages = 0;
  };
  MailTransport(std::shared_ptr<Office> office, int rank, int size)
      : office_(std::move(office)), rank_(rank), size_(size) {}
  RankPlace place() const override { return {rank_, size_, rank_, size_}; }
  void exchange(std::span<const Message> sends, std::span<const Message> receives) override {
    std::unique_lock lock(office_->mutex);
    for (const Message& m : sends) {
      ASSERT_NE(m.peer, rank_);
      const auto* bytes = static_cast<const std::byte*>(m.data);
      office_->letters[{rank_, m.peer}].emplace_back(bytes, bytes + m.bytes);
      office_->bytes += m.bytes;
      ++office_->messages;
    }
    office_->changed.notify_all();
    for (const Message& m : receives) {
      auto& from = office_->letters[{m.peer, rank_}];
      if (!office_->changed.wait_for(lock, std::chrono::seconds(60), [&] { return !from.empty(); }))
        throw RunError("no letter came");
      ASSERT_EQ(static_cast<std::int64_t>(from.front().size()), m.bytes);
      if (m.bytes > 0) std::memcpy(m.data, from.front().data(), from.front().size());
      from.pop_front();
    }
  }
  void set_patience(Patience) override {}
  [[noreturn]] void fail(int, const std::string& text) override { throw RunError(text); }

 private:
  std::shared_ptr<Office> office_;
  int rank_, size_;
};

}  // namespace compact::testing
