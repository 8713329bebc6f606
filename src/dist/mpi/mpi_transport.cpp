#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "compact/core/error.h"
#include "compact/dist/launcher.h"
#include "src/dist/transport.h"
#include "src/dist/waiting.h"

namespace compact {

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;  // of one MPI message, whose count is an int

/// What a message is about: bytes of an exchange, or the word of a rank, itself waiting, that one of those it
/// waits for is missing, or that it tells of the run's end.
enum Tag { kExchange, kWaits, kTells };

std::string processor_name() {
  char name[MPI_MAX_PROCESSOR_NAME + 1] = {};
  int length = 0;
  MPI_Get_processor_name(name, &length);
  return name;
}

class MpiTransport final : public Transport {
 public:
  MpiTransport() {
    // The worker of HostCommunicator and the main thread take turns; `mutex_` keeps them apart.
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks_);
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(ranks_, &place_.rank);
    MPI_Comm_size(ranks_, &place_.size);
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(ranks_, MPI_COMM_TYPE_SHARED, place_.rank, MPI_INFO_NULL, &machine);
    MPI_Comm_rank(machine, &place_.local_rank);
    MPI_Comm_size(machine, &place_.local_size);
    MPI_Comm_free(&machine);
    if (provided < MPI_THREAD_SERIALIZED)
      fail(1, "this MPI library was built without threads (MPI_THREAD_SERIALIZED), which compact needs");
  }

  ~MpiTransport() override {
    MPI_Comm_free(&ranks_);
    MPI_Finalize();
  }

  RankPlace place() const override { return place_; }

  void exchange(std::span<const Message> sends, std::span<const Message> receives) override {
    std::vector<MPI_Request> requests;
    std::vector<int> peers;
    {
      const std::lock_guard lock(mutex_);
      over_pieces(receives, [&](void* data, int bytes, int peer) {
        peers.push_back(peer);
        check(MPI_Irecv(data, bytes, MPI_BYTE, peer, kExchange, ranks_, &requests.emplace_back()));
      });
      over_pieces(sends, [&](const void* data, int bytes, int peer) {
        peers.push_back(peer);
        check(MPI_Isend(data, bytes, MPI_BYTE, peer, kExchange, ranks_, &requests.emplace_back()));
      });
    }
    Waiting waiting(patience_, longest_);
    for (int tries = 0; !all_done(requests); ++tries) {
      // At first as fast as can be, then without taking the core from those who compute.
      if (tries < 200)
        sched_yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(tries < 1000 ? 20 : 200));
      if (tries > 1000 && (waiting.too_long() || heard(kWaits) >= 0))
        give_up(waiting.seconds(), requests, peers);
    }
  }

  void set_patience(Patience patience) override { patience_ = std::move(patience); }

  // Several ranks may fail in the same way at about the same time: the first one speaks and ends the others,
  // which can take the launcher seconds; they keep silent meanwhile.
  [[noreturn]] void fail(int code, const std::string& text) override {
    signal(SIGTERM, SIG_DFL);
    if (heard_within(0.25 * std::min(place_.rank, 16), kTells))
      std::this_thread::sleep_for(std::chrono::seconds(20));
    else
      tell_all(kTells);
    std::fflush(stdout);
    std::fprintf(stderr, "compact: error: rank %d of %d, on %s: %s\n", place_.rank, place_.size,
                 processor_name().c_str(), text.c_str());
    std::fflush(stderr);
    const std::lock_guard lock(mutex_);
    MPI_Abort(ranks_, code);
    _exit(code);
  }

 private:
  template <typename Start>
  static void over_pieces(std::span<const Message> messages, Start start) {
    for (const Message& m : messages)
      for (std::int64_t at = 0; at < std::max<std::int64_t>(m.bytes, 1); at += kMostBytes)
        start(static_cast<std::byte*>(m.data) + at, static_cast<int>(std::min(kMostBytes, m.bytes - at)),
              m.peer);
  }

  bool all_done(std::vector<MPI_Request>& requests) {
    const std::lock_guard lock(mutex_);
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE));
    return done != 0;
  }

  /// A word without content to every other rank; small enough to go without their help.
  void tell_all(Tag tag) {
    const std::lock_guard lock(mutex_);
    for (int k = 0; k < place_.size; ++k)
      if (MPI_Request request = MPI_REQUEST_NULL; k != place_.rank) {
        MPI_Isend(nullptr, 0, MPI_BYTE, k, tag, ranks_, &request);
        MPI_Request_free(&request);
      }
  }

  /// The rank whose word has come, not taken off; -1 where none has.
  int heard(Tag tag) {
    const std::lock_guard lock(mutex_);
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, tag, ranks_, &there, &status);
    return there != 0 ? status.MPI_SOURCE : -1;
  }

  bool heard_within(double seconds, Tag tag) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    do {
      if (heard(tag) >= 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  void check(int result) {
    if (result == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING + 1] = {};
    int length = 0;
    MPI_Error_string(result, text, &length);
    mutex_.unlock();  // held by the caller; nothing returns from here
    fail(1, fmt::format("MPI fails: {}", text));
  }

  // Those waited for may themselves wait for another: whoever waits says so, and who says nothing is missing.
  [[noreturn]] void give_up(double seconds, std::vector<MPI_Request>& requests,
                            const std::vector<int>& peers) {
    std::vector<int> missing = unanswered(requests, peers);
    tell_all(kWaits);
    std::vector<bool> waits(static_cast<std::size_t>(place_.size));
    waits[static_cast<std::size_t>(place_.rank)] = true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (std::chrono::steady_clock::now() < end && heard(kTells) < 0) {
      if (const int rank = heard(kWaits); rank >= 0) {
        const std::lock_guard lock(mutex_);
        MPI_Recv(nullptr, 0, MPI_BYTE, rank, kWaits, ranks_, MPI_STATUS_IGNORE);
        waits[static_cast<std::size_t>(rank)] = true;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    std::vector<int> silent;
    for (int k = 0; k < place_.size; ++k)
      if (!waits[static_cast<std::size_t>(k)]) silent.push_back(k);
    if (!silent.empty()) missing = silent;
    const bool one = missing.size() == 1, hurried = patience_.hurried && patience_.hurried();
    fail(1, fmt::format("rank{} {} {} not answered for {:.0f} seconds, so the run ends; the newest "
                        "checkpoint stays. Look "
                        "at the machine{} of {}; {}",
                        one ? "" : "s", fmt::join(missing, ", "), one ? "has" : "have", seconds,
                        one ? "" : "s", one ? "that rank" : "those ranks",
                        hurried ? "the run was told to stop, and its ranks do not wait long then"
                                : "dist.timeout_seconds is how long ranks wait"));
  }

  /// Those of `peers` whose request is not done.
  std::vector<int> unanswered(std::vector<MPI_Request>& requests, const std::vector<int>& peers) {
    const std::lock_guard lock(mutex_);
    std::vector<int> missing;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      int done = 0;
      MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
      if (done == 0) missing.push_back(peers[i]);
    }
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    return missing;
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  RankPlace place_;
  std::mutex mutex_;
  Patience patience_;
  double longest_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> open_communicator() {
  const int launched = launched_processes();
  if (launched == 1) return make_local_communicator();
  auto transport = std::make_unique<MpiTransport>();
  if (launched > 1 && transport->place().size == 1)
    input_error(
        "the launcher has started {} processes, but MPI sees one: start them with the mpirun of the MPI that "
        "compact was built with ({}), or srun with the --mpi type that it was built for (srun --mpi=list)",
        launched, mpi_version());
  return make_host_communicator(std::move(transport));
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = {};
  int length = 0, major = 0, minor = 0;
  MPI_Get_library_version(text, &length);
  MPI_Get_version(&major, &minor);
  const std::string library(text);
  return fmt::format("MPI {}.{}, {}", major, minor, library.substr(0, library.find_first_of(",\n")));
}

}  // namespace compact
