#include "compact/memory/activation_store.h"

#include <array>

#include "compact/core/error.h"

namespace compact {

namespace {
constexpr std::array<std::string_view, 4> kNames = {"paper", "lean", "tight", "block"};
}

Preset preset_from(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Preset>(i);
  input_error("memory.preset: expected paper, lean, tight or block, found \"{}\"", name);
}

std::string_view name_of(Preset preset) { return kNames[static_cast<std::size_t>(preset)]; }

BlockPolicies block_policies(Preset preset, CompressedInputs compressed) {
  BlockPolicies p;
  if (preset == Preset::Block) return p;
  p.statistics = p.qkv = p.attention = p.residual = Policy::Keep;
  if (preset == Preset::Tight) return p;
  p.gate_up = Policy::Keep;
  if (preset == Preset::Lean) return p;
  const auto input = [](bool projected) { return projected ? Policy::Project : Policy::Keep; };
  p.normed1 = input(compressed.normed1);
  p.normed2 = input(compressed.normed2);
  p.product = input(compressed.product);
  p.activation = Policy::Keep;
  return p;
}

BlockPolicies nothing_kept() { return BlockPolicies{}; }

Tensor take(Arena& arena, Policy policy, std::string_view name, Shape shape, DType dtype) {
  if (policy == Policy::Absent) return {};
  if (policy == Policy::Keep) return arena.saved(name, shape, dtype);
  return arena.scratch(name, shape, dtype, Category::Activations);
}

}  // namespace compact
