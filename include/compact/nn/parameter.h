#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compact/core/tensor.h"
#include "compact/kernels/projection.h"

namespace compact {

/// What a weight does; optimizers choose their rule by it.
enum class Role { Embedding, Head, Norm, Q, K, V, O, Gate, Up, Down };

/// True for the matrices inside the blocks.
constexpr bool in_block(Role role) { return role >= Role::Q; }

/// One tensor of the model file inside a parameter: rows [first_row, first_row + rows). A norm is one row.
struct Member {
  std::string name;  ///< Hugging Face name
  Role role = Role::Norm;
  std::int64_t first_row = 0, rows = 0;
  std::int64_t rows_before = 0, rows_after = 0;  ///< of the tensor in the file, not in this parameter

  std::int64_t file_rows() const { return rows_before + rows + rows_after; }
};

/// The random projection of a compressed weight.
struct Compression {
  Projection projection;        ///< its window is that of update 0; see at_update
  std::int64_t update_gap = 1;  ///< updates that share one P

  Projection at_update(std::int64_t update) const {
    Projection p = projection;
    p.window = static_cast<std::uint32_t>(update / update_gap);
    return p;
  }
};

/// A weight and its gradient as the optimizer sees them: one tensor of the model file, or several that lie
/// one after another and are treated alike; or some rows of those (compact/optim/own_rows.h).
struct Parameter {
  std::vector<Member> members;
  std::uint32_t id = 0;  ///< number of its first member in the order of a model file; names its rounding
  Tensor weight;         ///< [rows, n]; norms [C]
  Tensor gradient;       ///< like weight; [rows, r] when compressed; empty in a model that is not trained
  std::optional<Compression> compression;
  std::int64_t first_row = 0;  ///< of weight and gradient in those of the whole parameter

  Role role() const { return members.front().role; }
};

}  // namespace compact
