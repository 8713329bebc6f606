#include "compact/memory/host_access.h"

#include "compact/core/error.h"
#include "compact/cuda/queue.h"

namespace compact {

const void* HostAccess::read(const Tensor& t) {
  require(t.contiguous(), "HostAccess", "a tensor that is not contiguous");
  if (queue_ == nullptr || t.elements() == 0) return t.data;
  buffer_.resize(static_cast<std::size_t>(t.bytes()));
  queue_->download(t.data, buffer_.data(), t.bytes());
  return buffer_.data();
}

Tensor HostAccess::begin_write(const Tensor& t) {
  require(t.contiguous(), "HostAccess", "a tensor that is not contiguous");
  if (queue_ == nullptr) return t;
  buffer_.resize(static_cast<std::size_t>(t.bytes()));
  return Tensor(buffer_.data(), t.shape, t.dtype);
}

void HostAccess::end_write(const Tensor& t) {
  if (queue_ != nullptr && t.elements() > 0) queue_->upload(buffer_.data(), t.data, t.bytes());
}

}  // namespace compact
