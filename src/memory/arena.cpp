#include "compact/memory/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "compact/core/error.h"
#include "compact/cuda/queue.h"
#include "compact/memory/arena_watch.h"

namespace compact {

namespace {
/// Tensors alive at once that can have a gap; those beyond have none.
constexpr std::int64_t kGaps = 4096;
}  // namespace

Arena::Arena(Device device, std::int64_t capacity, Device target)
    : device_(device), target_(target), capacity_(capacity) {
  if (device == Device::Plan) return;
  capacity_ = (capacity + kAlignment - 1) / kAlignment * kAlignment;
  if (capacity_ == 0) return;
  if (device == Device::Cuda) {
    slack_ = arena_watch != nullptr ? kGaps * arena_watch->gap : 0;
    base_ = static_cast<std::byte*>(cuda::allocate(capacity_ + slack_));
    if (arena_watch != nullptr) arena_watch->reserved(base_, capacity_ + slack_);
    return;
  }
  void* p = mmap(nullptr, static_cast<std::size_t>(capacity_), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    run_error(
        "not enough memory: the run needs {} in one piece and the system refuses it ({}). Less is needed "
        "with "
        "memory.preset \"block\", a smaller batch.micro_batch, or optimizer.name \"compact\"; `compact plan` "
        "shows what each takes.",
        human_bytes(capacity_), std::strerror(errno));
  // Large pages halve the cost of first touching the arena; where the kernel has none this changes nothing.
  madvise(p, static_cast<std::size_t>(capacity_), MADV_HUGEPAGE);
  base_ = static_cast<std::byte*>(p);
}

Arena::~Arena() {
  if (base_ == nullptr) return;
  if (device_ == Device::Cuda)
    cuda::release(base_);
  else
    munmap(base_, static_cast<std::size_t>(capacity_));
}

Tensor Arena::take(bool from_top, std::vector<Taken>& stack, std::string_view name, Shape shape, DType dtype,
                   Category category) {
  const std::int64_t bytes = (shape.elements() * size_of(dtype) + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes > capacity_ - bottom_ - top_)
    run_error(
        "out of memory: {} {} {} of category {} needs {}, the arena holds {} and has {} free.\n{}Less is "
        "needed "
        "with memory.preset \"block\", a smaller batch.micro_batch, or a smaller memory.logits_chunk_bytes.",
        name, shape.text(), name_of(dtype), name_of(category), human_bytes(bytes), human_bytes(capacity_),
        human_bytes(capacity_ - bottom_ - top_), memory_table(ledger_.now()));
  const std::int64_t gap = bottom_gaps_ + top_gaps_ < slack_ ? arena_watch->gap : 0;
  std::byte* at = nullptr;
  if (from_top) {
    top_ += bytes;
    top_gaps_ += gap;
    if (base_ != nullptr) at = base_ + (capacity_ + slack_ - top_ - top_gaps_);
  } else {
    if (base_ != nullptr) at = base_ + bottom_ + bottom_gaps_;
    bottom_ += bytes;
    bottom_gaps_ += gap;
  }
  stack.push_back({{std::string(name), shape, dtype, category, bytes}, at, gap});
  ledger_.add(stack.back().allocation);
  const Tensor tensor(at, shape, dtype);
  if (device_ == Device::Cuda && arena_watch != nullptr) arena_watch->taken(at, tensor.bytes());
  return tensor;
}

void Arena::release(bool from_top, std::vector<Taken>& stack, std::size_t mark) {
  while (stack.size() > mark) {
    const auto& [allocation, at, gap] = stack.back();
    (from_top ? top_ : bottom_) -= allocation.bytes;
    (from_top ? top_gaps_ : bottom_gaps_) -= gap;
    ledger_.remove(allocation);
    if (device_ == Device::Cuda && arena_watch != nullptr) arena_watch->released(at, allocation.bytes);
    stack.pop_back();
  }
}

Tensor Arena::persistent(std::string_view name, Shape shape, DType dtype, Category category) {
  require(saved_.empty(), "Arena::persistent", "taken while activations are saved");
  return take(false, persistent_, name, shape, dtype, category);
}

Tensor Arena::saved(std::string_view name, Shape shape, DType dtype, Category category) {
  return take(false, saved_, name, shape, dtype, category);
}

Tensor Arena::scratch(std::string_view name, Shape shape, DType dtype, Category category) {
  return take(true, scratch_, name, shape, dtype, category);
}

void Arena::release_saved(std::size_t mark) { release(false, saved_, mark); }
void Arena::release_scratch(std::size_t mark) { release(true, scratch_, mark); }

}  // namespace compact
