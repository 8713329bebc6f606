#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compact/core/tensor.h"

namespace compact {

/// What a byte of the arena is for.
enum class Category { Weights, Master, Gradients, Optimizer, Activations, Workspace };
inline constexpr int kCategories = 6;
std::string_view name_of(Category c);

using CategoryBytes = std::array<std::int64_t, kCategories>;

/// One live allocation.
struct Allocation {
  std::string name;
  Shape shape;
  DType dtype = DType::F32;
  Category category = Category::Workspace;
  std::int64_t bytes = 0;  ///< as laid out, alignment included
};

/// Counts the bytes of an arena by category, now and at the moment of the highest total.
class Ledger {
 public:
  void add(const Allocation& a);
  void remove(const Allocation& a);

  std::int64_t current() const { return current_total_; }
  std::int64_t peak() const { return peak_total_; }
  /// Bytes by category at the moment of the peak (their sum is peak()).
  const CategoryBytes& at_peak() const { return at_peak_; }
  const CategoryBytes& now() const { return now_; }
  /// The allocations that were live at the peak, in order of allocation.
  const std::vector<Allocation>& live_at_peak() const;
  /// Forgets the peak: it becomes what is live now.
  void reset_peak();

 private:
  std::vector<Allocation> live_;
  mutable std::vector<Allocation> live_at_peak_;
  mutable bool peak_listed_ = true;  // the list is copied lazily, when the peak is left or asked for
  CategoryBytes now_{}, at_peak_{};
  std::int64_t current_total_ = 0, peak_total_ = 0;
};

/// A table of bytes by category for people, one category a line.
std::string memory_table(const CategoryBytes& bytes);
/// "1.25 GiB"
std::string human_bytes(std::int64_t bytes);

}  // namespace compact
