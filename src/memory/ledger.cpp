#include "compact/memory/ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "compact/core/error.h"

namespace compact {

std::string_view name_of(Category c) {
  static constexpr std::string_view names[kCategories] = {"weights",   "master",      "gradients",
                                                          "optimizer", "activations", "workspace"};
  return names[static_cast<std::size_t>(c)];
}

void Ledger::add(const Allocation& a) {
  live_.push_back(a);
  now_[static_cast<std::size_t>(a.category)] += a.bytes;
  current_total_ += a.bytes;
  if (current_total_ > peak_total_) {
    peak_total_ = current_total_;
    at_peak_ = now_;
    peak_listed_ = false;
  }
}

void Ledger::remove(const Allocation& a) {
  if (!peak_listed_) live_at_peak();
  // Two stacks share the list, so the entry is near the end but not always last.
  auto it = std::find_if(live_.rbegin(), live_.rend(), [&](const Allocation& b) {
    return b.bytes == a.bytes && b.category == a.category && b.name == a.name;
  });
  require(it != live_.rend(), "Ledger::remove", "unknown allocation");
  live_.erase(std::next(it).base());
  now_[static_cast<std::size_t>(a.category)] -= a.bytes;
  current_total_ -= a.bytes;
}

const std::vector<Allocation>& Ledger::live_at_peak() const {
  if (!peak_listed_) {
    live_at_peak_ = live_;
    peak_listed_ = true;
  }
  return live_at_peak_;
}

void Ledger::reset_peak() {
  peak_total_ = current_total_;
  at_peak_ = now_;
  live_at_peak_ = live_;
  peak_listed_ = true;
}

std::string human_bytes(std::int64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (bytes >= (std::int64_t{1} << 30)) return fmt::format("{:.2f} GiB", b / (1 << 30));
  if (bytes >= (1 << 20)) return fmt::format("{:.1f} MiB", b / (1 << 20));
  if (bytes >= (1 << 10)) return fmt::format("{:.1f} KiB", b / (1 << 10));
  return fmt::format("{} B", bytes);
}

std::string memory_table(const CategoryBytes& bytes) {
  std::string out;
  std::int64_t total = 0;
  for (int c = 0; c < kCategories; ++c) {
    const std::int64_t b = bytes[static_cast<std::size_t>(c)];
    total += b;
    out += fmt::format("  {:<12} {:>12}\n", name_of(static_cast<Category>(c)), human_bytes(b));
  }
  return out + fmt::format("  {:<12} {:>12}\n", "total", human_bytes(total));
}

}  // namespace compact
