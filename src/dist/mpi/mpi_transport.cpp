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
#include "src/dist/launcher.h"
#include "src/dist/transport.h"
#include "src/dist/waiting.h"

namespace compact {

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;  // of one MPI message, whose count is an int

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
        check(MPI_Irecv(data, bytes, MPI_BYTE, peer, 0, ranks_, &requests.emplace_back()));
      });
      over_pieces(sends, [&](const void* data, int bytes, int peer) {
        peers.push_back(peer);
        check(MPI_Isend(data, bytes, MPI_BYTE, peer, 0, ranks_, &requests.emplace_back()));
      });
    }
    Waiting waiting(patience_, longest_);
    for (int tries = 0; !all_done(requests); ++tries) {
      // At first as fast as can be, then without taking the core from those who compute.
      if (tries < 200)
        sched_yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(tries < 1000 ? 20 : 200));
      if (tries > 1000 && waiting.too_long()) give_up(waiting.seconds(), requests, peers);
    }
  }

  void set_patience(Patience patience) override { patience_ = std::move(patience); }

  // Several ranks may fail in the same way at about the same time: the first one speaks, and ends the others
  // before their turn comes.
  [[noreturn]] void fail(int code, const std::string& text) override {
    signal(SIGTERM, SIG_DFL);
    std::this_thread::sleep_for(std::chrono::milliseconds(250 * std::min(place_.rank, 16)));
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

  void check(int result) {
    if (result == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING + 1] = {};
    int length = 0;
    MPI_Error_string(result, text, &length);
    mutex_.unlock();  // held by the caller; nothing returns from here
    fail(1, fmt::format("MPI fails: {}", text));
  }

  [[noreturn]] void give_up(double seconds, std::vector<MPI_Request>& requests,
                            const std::vector<int>& peers) {
    std::vector<int> missing;
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        int done = 0;
        MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
        if (done == 0) missing.push_back(peers[i]);
      }
    }
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    const bool one = missing.size() == 1;
    fail(1,
         fmt::format("rank{} {} {} not answered for {:.0f} seconds, so the run ends; the newest checkpoint "
                     "stays. Look at the machine{} of {}; dist.timeout_seconds is how long ranks wait",
                     one ? "" : "s", fmt::join(missing, ", "), one ? "has" : "have", seconds, one ? "" : "s",
                     one ? "that rank" : "those ranks"));
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
