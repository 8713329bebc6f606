#pragma once
#include <memory>
#include <type_traits>

namespace compact::cuda {

/// Calls a library's function that destroys a handle.
template <auto kDestroy>
struct Destroy {
  template <typename Handle>
  void operator()(Handle handle) const {
    kDestroy(handle);
  }
};

/// The owner of a library's handle, which is a pointer to something opaque.
template <typename Handle, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<kDestroy>>;

}  // namespace compact::cuda
