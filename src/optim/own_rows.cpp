#include "compact/optim/own_rows.h"

#include <algorithm>

#include "compact/core/error.h"
#include "compact/dist/rows.h"

namespace compact {

namespace {
/// Norms stay of one dimension where they are here.
Tensor view_of(const Tensor& t, const Rows& rows) {
  return t.empty() || rows.count == t.rows() ? t : rows_in(t, rows);
}
}  // namespace

std::vector<Parameter> own_rows(std::span<const Parameter> parameters, int rank, int size) {
  require(rank >= 0 && rank < size, "own_rows", "no such rank");
  std::vector<Parameter> own(parameters.begin(), parameters.end());
  for (Parameter& p : own) {
    const Rows rows = rows_of(p.weight, rank, size);
    const std::int64_t end = rows.first + rows.count;
    p.weight = view_of(p.weight, rows);
    p.gradient = view_of(p.gradient, rows);
    p.first_row += rows.first;
    for (Member& member : p.members) {
      const std::int64_t from = std::clamp(member.first_row, rows.first, end),
                         to = std::clamp(member.first_row + member.rows, rows.first, end);
      // A member without rows has all of them before or after it.
      const std::int64_t before = std::clamp(rows.first - member.first_row, std::int64_t{0}, member.rows);
      member.rows_before += before;
      member.rows_after += member.rows - before - (to - from);
      member.first_row = from - rows.first;
      member.rows = to - from;
    }
  }
  return own;
}

}  // namespace compact
