#include "compact/memory/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "compact/core/error.h"
#include "compact/cuda/queue.h"

namespace compact {

Arena::Arena(Device device, std::int64_t capacity, Device target)
    : device_(device), target_(target), capacity_(capacity) {
  if (device == Device::Plan) return;
  capacity_ = (capacity + kAlignment - 1) / kAlignment * kAlignment;
  if (capacity_ == 0) return;
  if (device == Device::Cuda) {
    base_ = static_cast<std::byte*>(cuda::allocate(capacity_));
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

Tensor Arena::take(bool from_top, std::vector<Allocation>& stack, std::string_view name, Shape shape,
                   DType dtype, Category category) {
  const std::int64_t bytes = (shape.elements() * size_of(dtype) + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes > capacity_ - bottom_ - top_)
    run_error(
        "out of memory: {} {} {} of category {} needs {}, the arena holds {} and has {} free.\n{}Less is "
        "needed "
        "with memory.preset \"block\", a smaller batch.micro_batch, or a smaller memory.logits_chunk_bytes.",
        name, shape.text(), name_of(dtype), name_of(category), human_bytes(bytes), human_bytes(capacity_),
        human_bytes(capacity_ - bottom_ - top_), memory_table(ledger_.now()));
  std::byte* at = nullptr;
  if (from_top) {
    top_ += bytes;
    if (base_ != nullptr) at = base_ + (capacity_ - top_);
  } else {
    if (base_ != nullptr) at = base_ + bottom_;
    bottom_ += bytes;
  }
  stack.push_back({std::string(name), shape, dtype, category, bytes});
  ledger_.add(stack.back());
  return Tensor(at, shape, dtype);
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

void Arena::release_saved(std::size_t mark) {
  while (saved_.size() > mark) {
    bottom_ -= saved_.back().bytes;
    ledger_.remove(saved_.back());
    saved_.pop_back();
  }
}

void Arena::release_scratch(std::size_t mark) {
  while (scratch_.size() > mark) {
    top_ -= scratch_.back().bytes;
    ledger_.remove(scratch_.back());
    scratch_.pop_back();
  }
}

}  // namespace compact
