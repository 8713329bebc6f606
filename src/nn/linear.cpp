#include "compact/nn/linear.h"

#include <algorithm>
#include <cmath>

#include "compact/core/error.h"
#include "compact/kernels/gemm.h"

namespace compact {

bool CompactOptions::compresses(Role role) const {
  return std::find(layers.begin(), layers.end(), role) != layers.end();
}

std::int64_t projected_width(double rank, std::int64_t n) {
  if (rank > 1) return static_cast<std::int64_t>(rank);
  // nearbyint rounds half to even in the default mode: 5461 / 2 -> 2730.
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::nearbyint(rank * static_cast<double>(n))));
}

Linear::Linear(Context& context, std::string name, std::int64_t n, std::vector<LinearPart> parts,
               DType activation, const CompactOptions* compact, GradientMemory& gradients)
    : n_(n) {
  std::int64_t m = 0;
  for (const LinearPart& part : parts) m += part.rows;
  weight_ = context.arena.persistent(name, {m, n}, activation, Category::Weights);

  const bool shared = compact != nullptr && compact->sharing == Sharing::PerInput;
  std::int64_t row = 0;
  for (const LinearPart& part : parts) {
    const bool compressed = compact != nullptr && compact->compresses(part.role);
    // Neighbours with the same treatment become one parameter: one GEMM for their gradients.
    const bool joins = !parameters_.empty() && parameters_.back().compression.has_value() == compressed &&
                       (!compressed || shared);
    if (!joins) {
      Parameter p;
      int z = -1;
      if (compressed) {
        if (!shared || projections_.empty()) {
          Projection projection;
          projection.kind = compact->projection;
          projection.seed = compact->seed;
          projection.id = shared ? parts.front().projection_id : part.projection_id;
          projection.n = n;
          projection.r = projected_width(compact->rank, n);
          projection.dtype = activation;
          if (keeps_matrix(projection.kind))
            projection.matrix = context.arena.persistent(part.name + ".projection", {n, projection.r},
                                                         projection.dtype, Category::Optimizer);
          projections_.push_back({projection, compact->update_gap});
          widths_.push_back(projection.r);
        }
        z = static_cast<int>(projections_.size()) - 1;
        p.compression = projections_.back();
      }
      z_of_.push_back(z);
      first_row_.push_back(row);
      parameters_.push_back(std::move(p));
    }
    Parameter& p = parameters_.back();
    p.members.push_back({part.name, part.role, row - first_row_.back(), part.rows});
    row += part.rows;
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = parameters_[i];
    const std::int64_t rows = p.members.back().first_row + p.members.back().rows;
    p.weight = weight_.row_range(first_row_[i], rows);
    const std::int64_t columns = p.compression ? p.compression->projection.r : n;
    p.gradient = gradients.take(context, p.members.front().name, {rows, columns});
  }
}

bool Linear::fully_compressed() const {
  return std::all_of(z_of_.begin(), z_of_.end(), [](int z) { return z >= 0; });
}

void Linear::forward(Context& context, const Tensor& x, const Tensor& out) const {
  gemm(context, x, Transpose::No, weight_, Transpose::Yes, out, false);
}

void Linear::project(Context& context, const Pass& pass, const Tensor& x,
                     const std::vector<Tensor>& z) const {
  for (std::size_t i = 0; i < projections_.size(); ++i)
    compact::project(context, projections_[i].at_update(pass.update), x, z[i]);
}

void Linear::input_gradient(Context& context, const Tensor& dout, const Tensor& dx) const {
  gemm(context, dout, Transpose::No, weight_, Transpose::No, dx, false);
}

void Linear::weight_gradient(Context& context, const Pass& pass, const Tensor& dout, const Tensor& x,
                             const std::vector<Tensor>& z) const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    const Tensor part = dout.columns(first_row_[i], p.weight.rows());  // [N, rows]
    const Tensor& input = z_of_[i] < 0 ? x : z[static_cast<std::size_t>(z_of_[i])];
    gemm(context, part, Transpose::Yes, input, Transpose::No, p.gradient, !pass.first);
  }
}

}  // namespace compact
