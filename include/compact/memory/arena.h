#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compact/core/device.h"
#include "compact/core/tensor.h"
#include "compact/memory/ledger.h"

namespace compact {

/// All memory of one device: one allocation, in three parts.
///   persistent  grows from the bottom and is never freed (weights, gradients, optimizer states)
///   saved       a stack above it: what forward keeps for backward
///   scratch     a stack from the top downwards: what lives inside an op or a block
/// Both stacks are freed in reverse through marks. Every tensor starts at a multiple of 64 bytes.
/// On the plan device there is no memory and no limit; addresses are null, the ledger counts the same.
class Arena {
 public:
  static constexpr std::int64_t kAlignment = 64;
  static constexpr std::int64_t kUnlimited = INT64_MAX / 4;

  /// Reserves `capacity` bytes on `device`. Throws RunError when the system refuses. On the plan device
  /// `target` is the device that is planned for.
  Arena(Device device, std::int64_t capacity, Device target);
  Arena(Device device, std::int64_t capacity)
      : Arena(device, capacity, device == Device::Plan ? Device::Cpu : device) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Each throws RunError when the arena is full; the message names the tensor, its shape and category, the
  /// table of live bytes, and settings that need less.
  Tensor persistent(std::string_view name, Shape shape, DType dtype, Category category);
  Tensor saved(std::string_view name, Shape shape, DType dtype, Category category = Category::Activations);
  Tensor scratch(std::string_view name, Shape shape, DType dtype, Category category = Category::Workspace);

  std::size_t saved_mark() const { return saved_.size(); }
  std::size_t scratch_mark() const { return scratch_.size(); }
  void release_saved(std::size_t mark);
  void release_scratch(std::size_t mark);

  Device device() const { return device_; }
  /// The device whose memory this is, or whose memory is planned.
  Device target() const { return target_; }
  std::int64_t capacity() const { return capacity_; }
  const Ledger& ledger() const { return ledger_; }
  Ledger& ledger() { return ledger_; }

 private:
  struct Taken {
    Allocation allocation;
    std::byte* at = nullptr;
    std::int64_t gap = 0;  // behind it, for an ArenaWatch
  };
  Tensor take(bool from_top, std::vector<Taken>& stack, std::string_view name, Shape shape, DType dtype,
              Category category);
  void release(bool from_top, std::vector<Taken>& stack, std::size_t mark);

  Device device_, target_;
  std::int64_t capacity_ = 0;
  std::byte* base_ = nullptr;
  std::int64_t bottom_ = 0;  // bytes used from the bottom
  std::int64_t top_ = 0;     // bytes used from the top
  // For an ArenaWatch: memory above the capacity, and what the gaps on either side use of it.
  std::int64_t slack_ = 0, bottom_gaps_ = 0, top_gaps_ = 0;
  std::vector<Taken> persistent_, saved_, scratch_;
  Ledger ledger_;
};

/// Frees the scratch taken since its construction.
class ScratchScope {
 public:
  explicit ScratchScope(Arena& arena) : arena_(arena), mark_(arena.scratch_mark()) {}
  ~ScratchScope() { arena_.release_scratch(mark_); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  Arena& arena_;
  std::size_t mark_;
};

/// Frees the saved tensors taken since its construction.
class SavedScope {
 public:
  explicit SavedScope(Arena& arena) : arena_(arena), mark_(arena.saved_mark()) {}
  ~SavedScope() { arena_.release_saved(mark_); }
  SavedScope(const SavedScope&) = delete;
  SavedScope& operator=(const SavedScope&) = delete;

 private:
  Arena& arena_;
  std::size_t mark_;
};

}  // namespace compact
