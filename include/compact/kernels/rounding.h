#pragma once
#include <cstdint>

namespace compact {

/// How bf16 weights and bf16 second moments take a new value (design, section 4). Random bits come from
/// Philox with key `seed`; element (i, j) of a tensor uses word j mod 4 of the counter
/// (j / 4, first_row + i, step, stream rounding << 24 | id): its lower 16 bits for the weight, its upper 16
/// for the second moment. So a resumed run rounds as the first one did, and rows that are updated apart round
/// as they do in the whole. Second moments of which there is one for each row are a row of their own, of
/// which element first_row + i is that of row i.
struct Rounding {
  bool stochastic = true;      ///< of weights; else to nearest. Second moments in bf16 are always stochastic
  std::uint64_t seed = 0;      ///< of the run
  std::uint32_t id = 0;        ///< of the weight, unique in the model, 24 bits
  std::uint32_t step = 0;      ///< index of the update
  std::int64_t first_row = 0;  ///< of the tensor in the whole weight
};

}  // namespace compact
