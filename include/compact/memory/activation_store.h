#pragma once
#include <string>
#include <string_view>

#include "compact/memory/arena.h"

namespace compact {

/// How much of a block's forward pass stays in memory for its backward pass (design, section 3).
enum class Preset { Paper, Lean, Tight, Block };

/// Throws InputError for an unknown name.
Preset preset_from(std::string_view name);
std::string_view name_of(Preset preset);

/// What happens to a tensor that backward needs.
enum class Policy {
  Keep,       ///< stays on the saved stack until its block's backward is done
  Project,    ///< only z = xP stays (paper: the input of a compressed linear)
  Recompute,  ///< made again in backward from what is kept
  Absent,     ///< not made at all
};

/// The policy of every tensor of one block but its input, which is always kept. A linear's input is projected
/// only where every weight that reads it is compressed.
struct BlockPolicies {
  Policy statistics = Policy::Recompute;  ///< rstd of both norms [N]
  Policy normed1 = Policy::Recompute;     ///< input of q, k, v [N, C]
  Policy qkv = Policy::Recompute;         ///< q, k, v after RoPE [N, (H + 2 Hkv) D]
  Policy attention = Policy::Recompute;   ///< attention output [N, H D] and log-sum-exp [B, H, T]
  Policy residual = Policy::Recompute;    ///< after attention [N, C]
  Policy normed2 = Policy::Recompute;     ///< input of gate and up [N, C]
  Policy gate_up = Policy::Recompute;     ///< [N, 2F]
  Policy activation = Policy::Absent;     ///< silu(gate) [N, F]
  Policy product = Policy::Recompute;     ///< input of down [N, F]
};

/// Which inputs of a block's linears are read by compressed weights only.
struct CompressedInputs {
  bool normed1 = false, normed2 = false, product = false;
};

BlockPolicies block_policies(Preset preset, CompressedInputs compressed);
/// For a forward pass without backward: nothing stays.
BlockPolicies nothing_kept();

/// Gives each tensor its place: kept ones on the saved stack, all others in scratch, where they live until
/// the end of the enclosing ScratchScope. Both count as activations. An absent tensor is empty.
Tensor take(Arena& arena, Policy policy, std::string_view name, Shape shape, DType dtype);

}  // namespace compact
