#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "compact/core/error.h"
#include "compact/cuda/queue.h"
#include "compact/dist/nccl.h"
#include "compact/dist/rows.h"
#include "nccl_library.h"
#include "src/dist/waiting.h"

namespace compact {

namespace {

ncclDataType_t type_of(const Tensor& t) {
  switch (t.dtype) {
    case DType::F32:
      return ncclFloat32;
    case DType::BF16:
      return ncclBfloat16;
    case DType::F64:
      return ncclFloat64;
    default:
      bug("NcclCommunicator: a tensor that is not of F32, BF16 or F64");
  }
}

std::size_t count(const Tensor& t) { return static_cast<std::size_t>(t.elements()); }

enum class Kind : std::int64_t { AllReduce, Reduce, Gather };

/// What a call depends on, for Queue::admit; no padding.
struct Call {
  Kind kind;
  ncclComm_t comm;
  const void* data;
  std::int64_t rows, cols, type;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Communicator& host, cuda::Queue& queue, Patience patience)
      : host_(host), queue_(queue), patience_(std::move(patience)) {}

  ~NcclCommunicator() override {
    queue_.watch(nullptr);
    queue_.forget_graph();  // NCCL waits for the end of all graphs that hold its calls
    if (comm_ == nullptr) return;
    if (failed_ || std::uncaught_exceptions() > 0)
      ncclCommAbort(comm_);
    else
      ncclCommDestroy(comm_);
  }

  void start() {
    const ncclUniqueId id = agree_on_id();
    // Its calls return at once then, so that a rank which the others leave alone does not wait for ever.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    queue_.side();  // a stream cannot be made while a step is recorded
    settle(ncclCommInitRankConfig(&comm_, size(), id, rank(), &config), "ncclCommInitRankConfig");
    queue_.watch([this] {
      const auto waiting = std::make_shared<Waiting>(patience_, longest_);
      return [this, waiting] { look(*waiting); };
    });
  }

  RankPlace place() const override { return host_.place(); }
  void sum(std::span<double> values) override {
    on_host([&] { host_.sum(values); });
  }
  std::vector<std::string> gather_texts(const std::string& text) override {
    std::vector<std::string> all;
    on_host([&] { all = host_.gather_texts(text); });
    return all;
  }
  std::vector<std::byte> collect(std::span<const std::byte> bytes) override {
    std::vector<std::byte> all;
    on_host([&] { all = host_.collect(bytes); });
    return all;
  }
  void set_patience(Patience patience) override {
    patience_ = patience;
    host_.set_patience(std::move(patience));
  }
  [[noreturn]] void fail(int code, const std::string& text) override {
    failed_ = true;
    host_.fail(code, text);
    std::abort();  // it does not return, which a virtual function cannot tell the compiler
  }

  void reserve(Context&, std::int64_t) override {}
  void all_reduce(Context& context, std::span<const Tensor> tensors) override {
    send(context, Kind::AllReduce, tensors);
  }
  void reduce(Context& context, std::span<const Tensor> tensors) override {
    send(context, Kind::Reduce, tensors);
  }
  void gather(Context& context, std::span<const Tensor> tensors) override {
    send(context, Kind::Gather, tensors);
  }
  void wait(Context& context) override {
    if (!context.planning()) queue_.join();
  }

 private:
  /// What rank 0 makes, once NCCL is found everywhere.
  ncclUniqueId agree_on_id() {
    ncclUniqueId id{};
    std::string error;
    try {
      load_nccl();
      if (rank() == 0) {
        const ncclResult_t made = ncclGetUniqueId(&id);
        if (made != ncclSuccess) run_error("ncclGetUniqueId: {}", ncclGetErrorString(made));
      }
    } catch (const std::runtime_error& e) {
      error = e.what();
    }
    const std::vector<std::string> errors = host_.gather_texts(error);
    const auto first =
        std::find_if(errors.begin(), errors.end(), [](const std::string& text) { return !text.empty(); });
    if (first != errors.end()) {
      if (rank() != 0) throw SaidElsewhere(2);
      const bool alike = std::count(errors.begin(), errors.end(), *first) == size();
      throw KnownToAll<InputError>(
          alike ? *first : fmt::format("rank {} of {}: {}", first - errors.begin(), size(), *first));
    }
    const std::string own = rank() == 0 ? std::string(id.internal, sizeof(id.internal)) : "";
    const std::string bytes = host_.gather_texts(own).front();
    require(bytes.size() == sizeof(id.internal), "NcclCommunicator", "no id of rank 0");
    std::memcpy(id.internal, bytes.data(), sizeof(id.internal));
    return id;
  }

  template <typename Talk>
  void on_host(Talk talk) {
    try {
      talk();
    } catch (...) {
      failed_ = true;  // other ranks may not come for what the cards wait for
      throw;
    }
    waited_ = host_.waited_seconds();
  }

  // ---- what NCCL says -----------------------------------------------------------------------------------

  /// Ends the run where `result` is an error.
  void expect(ncclResult_t result, const char* what) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    fail(1, fmt::format("rank {}: {}: {} ({}); NCCL_DEBUG=WARN in the environment says more", rank(), what,
                        ncclGetErrorString(result), ncclGetLastError(comm_)));
  }

  ncclResult_t state() {
    ncclResult_t result = ncclSuccess;
    expect(ncclCommGetAsyncError(comm_, &result), "ncclCommGetAsyncError");
    return result;
  }

  /// One look at the others in a wait: ends the run where they do not come.
  void look(Waiting& waiting) {
    expect(state(), "a call between ranks");
    if (waiting.too_long())
      fail(1, fmt::format("rank {} waits for the cards of other ranks since {:.0f} seconds", rank(),
                          waiting.seconds()));
  }

  /// Returns when a call that was begun is done on the host.
  void settle(ncclResult_t begun, const char* what) {
    expect(begun, what);
    if (begun != ncclInProgress) return;
    Waiting waiting(patience_, longest_);
    for (ncclResult_t now = state(); now == ncclInProgress; now = state()) {
      look(waiting);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    expect(state(), what);
  }

  // ---- tensors ------------------------------------------------------------------------------------------

  Tensor share(const Tensor& t, int owner) const { return rows_in(t, rows_of(t, owner, size())); }

  ncclResult_t call(Kind kind, const Tensor& t) {
    const ncclDataType_t type = type_of(t);
    CUstream_st* const stream = queue_.side();
    if (kind == Kind::AllReduce) return ncclAllReduce(t.data, t.data, count(t), type, ncclSum, comm_, stream);
    // Equal shares lie as NCCL wants them; of others each is a call of its own.
    if (t.rows() % size() == 0) {
      const Tensor own = share(t, rank());
      return kind == Kind::Reduce
                 ? ncclReduceScatter(t.data, own.data, count(own), type, ncclSum, comm_, stream)
                 : ncclAllGather(own.data, t.data, count(own), type, comm_, stream);
    }
    for (int owner = 0; owner < size(); ++owner) {
      const Tensor own = share(t, owner);
      if (own.elements() == 0) continue;
      const ncclResult_t result =
          kind == Kind::Reduce
              ? ncclReduce(own.data, own.data, count(own), type, ncclSum, owner, comm_, stream)
              : ncclBroadcast(own.data, own.data, count(own), type, owner, comm_, stream);
      if (result != ncclSuccess) return result;
    }
    return ncclSuccess;
  }

  /// Queues the calls for all tensors, as one group, beside what the queue is given next.
  void send(Context& context, Kind kind, std::span<const Tensor> tensors) {
    std::int64_t bytes = 0;
    for (const Tensor& t : tensors) {
      require(t.contiguous(), "NcclCommunicator", "tensors of ranks must be contiguous");
      bytes += (kind == Kind::AllReduce ? 2 : 1) * t.bytes();
    }
    // The function of a step is run once or twice; its first run is the one that every step has.
    bool counts = true, admitted = true;
    if (!context.planning()) {
      require(context.queue == &queue_, "NcclCommunicator", "tensors of another device");
      queue_.fork();
      for (const Tensor& t : tensors) {
        const Call what{kind, comm_, t.data, t.rows(), t.cols(), type_of(t)};
        admitted = queue_.admit(&what, sizeof(what)) && admitted;
      }
      counts = !admitted || !queue_.in_step();
    }
    if (counts) sent_ += bytes;
    if (context.planning() || !admitted || bytes == 0) return;
    expect(ncclGroupStart(), "ncclGroupStart");
    for (const Tensor& t : tensors)
      if (t.elements() > 0) expect(call(kind, t), "a call between ranks");
    settle(ncclGroupEnd(), "ncclGroupEnd");
    if (!queue_.options().sync_checks) return;
    queue_.join();
    queue_.launched("a call between ranks");
  }

  Communicator& host_;
  cuda::Queue& queue_;
  ncclComm_t comm_ = nullptr;
  Patience patience_;
  double longest_ = 0;   // seconds of the longest wait for the card
  bool failed_ = false;  // the others may not come any more
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, cuda::Queue& queue,
                                                     Patience patience) {
  host.set_patience(patience);
  auto made = std::make_unique<NcclCommunicator>(host, queue, std::move(patience));
  made->start();
  return made;
}

bool nccl_is_built() { return true; }
std::string nccl_version() { return fmt::format("NCCL {}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH); }

}  // namespace compact
