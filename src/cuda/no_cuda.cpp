#include "compact/core/error.h"
#include "compact/cuda/device.h"
#include "compact/cuda/queue.h"
#include "compact/cuda/range.h"

/// The CUDA device of a build without CUDA.
namespace compact::cuda {

namespace {
[[noreturn]] void absent() {
  input_error(
      "device \"cuda\": this build of compact has no CUDA backend; build it where nvcc is (docs/cuda.md), or "
      "use "
      "device \"cpu\"");
}
}  // namespace

struct Queue::State {};

bool is_built() { return false; }
int device_count() { absent(); }
DeviceInfo device_info(int) { absent(); }
std::string describe(const DeviceInfo&) { absent(); }

Queue::Queue(const QueueOptions&) { absent(); }
Queue::~Queue() = default;
CUstream_st* Queue::stream() const { return nullptr; }
cublasLtContext* Queue::blas() const { return nullptr; }
std::shared_ptr<void>& Queue::products() { absent(); }
int Queue::multiprocessors() const { return 0; }
std::int64_t Queue::graphs_recorded() const { return 0; }
const void* Queue::live_bytes(const void*, std::size_t) { absent(); }
void Queue::step(const std::function<void()>&) { absent(); }
bool Queue::admit(const void*, std::size_t) { absent(); }
void Queue::launched(std::string_view) { absent(); }
bool Queue::in_step() const { return false; }
CUstream_st* Queue::side() { absent(); }
void Queue::fork() { absent(); }
void Queue::join() { absent(); }
void Queue::forget_graph() { absent(); }
void Queue::upload(const void*, void*, std::int64_t) { absent(); }
void Queue::download(const void*, void*, std::int64_t) { absent(); }
void Queue::upload_later(const void*, void*, std::int64_t) { absent(); }
void Queue::download_later(const void*, void*, std::int64_t) { absent(); }
void Queue::wait() { absent(); }
void Queue::watch(std::function<Look()>) { absent(); }

PinnedMemory::PinnedMemory(std::int64_t) { absent(); }
PinnedMemory::~PinnedMemory() = default;
void* allocate(std::int64_t) { absent(); }
void release(void*) { absent(); }
void allocate_managed(bool) {}

Range::Range(const char*) {}
Range::~Range() = default;

}  // namespace compact::cuda
