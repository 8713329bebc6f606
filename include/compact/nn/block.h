#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compact/kernels/attention.h"
#include "compact/memory/activation_store.h"
#include "compact/memory/context.h"
#include "compact/nn/linear.h"

namespace compact {

/// The sizes of a block.
struct BlockSizes {
  std::int64_t C = 0;           ///< hidden width
  std::int64_t F = 0;           ///< MLP width
  std::int64_t H = 0, Hkv = 0;  ///< query and key/value heads
  std::int64_t D = 0;           ///< head width
  float norm_eps = 1e-6f;
};

/// What one pass through a block left for its backward, N = B·T. Empty where the policy keeps nothing.
struct BlockTensors {
  Tensor x;                                      ///< [N, C] block input
  Tensor rstd1, rstd2;                           ///< [N] F32
  Tensor normed1, normed2;                       ///< [N, C] norm outputs
  Tensor qkv;                                    ///< [N, (H + 2 Hkv) D], q and k rotated
  Tensor attention;                              ///< [N, H D]
  Tensor lse;                                    ///< [B, H, T] F32
  Tensor residual;                               ///< [N, C]
  Tensor gate_up;                                ///< [N, 2F]
  Tensor activation;                             ///< [N, F] silu(gate)
  Tensor product;                                ///< [N, F]
  std::vector<Tensor> z_qkv, z_gate_up, z_down;  ///< [N, r] each
};

/// Keys and values of the positions a block has seen, for generation.
struct BlockCache {
  Tensor k, v;  ///< [positions, Hkv D], k rotated
};

/// One transformer block of LLaMA: x + o(attention(rope(q, k), v)), then + down(swiglu(gate, up)), norms
/// before both.
class Block {
 public:
  /// `prefix` is "model.layers.N."; `layer` numbers the projections (layer · 8 + place of the weight in the
  /// block).
  Block(Context& context, std::uint32_t layer, const BlockSizes& sizes, DType activation,
        const CompactOptions* compact, GradientMemory& gradients);

  /// Block input x [N, C] (already in t.x) to block output, which is `out` [N, C] or, if that is empty, a new
  /// kept tensor. What `policies` keep goes to the saved stack, in t.
  Tensor forward(Context& context, const Pass& pass, const BlockPolicies& policies, const Tensor& rope_table,
                 BlockTensors& t, const Tensor& out) const;

  /// dx [N, C] holds the gradient of the block's output and becomes that of its input; weight gradients are
  /// written or added. Tensors that were not kept are made again, with the same bits.
  void backward(Context& context, const Pass& pass, const BlockPolicies& policies, const Tensor& rope_table,
                BlockTensors& t, const Tensor& dx) const;

  /// Inference of new positions first .. first + T - 1 of one sequence: x [T, C] in place. `cache` holds the
  /// earlier ones and receives the new.
  void decode(Context& context, std::int64_t first, const Tensor& rope_table, const BlockCache& cache,
              const Tensor& x) const;

  CompressedInputs compressed_inputs() const;
  /// In the order of a Hugging Face model file.
  std::vector<Parameter> parameters() const;

 private:
  AttentionShape attention_shape(const Pass& pass) const;
  void attention_forward_half(Context& context, const Pass& pass, const BlockPolicies& policies,
                              const Tensor& rope_table, BlockTensors& t) const;
  void gate_up_forward(Context& context, const Pass& pass, const BlockPolicies& policies,
                       BlockTensors& t) const;
  void mlp_backward(Context& context, const Pass& pass, BlockTensors& t, const Tensor& dx) const;
  void attention_backward_half(Context& context, const Pass& pass, const Tensor& rope_table, BlockTensors& t,
                               const Tensor& dx) const;
  void weight_gradient(Context& context, const Pass& pass, const Linear& linear, const Tensor& dout,
                       const Tensor& input, std::vector<Tensor>& z, const char* name) const;
  std::vector<Tensor> take_z(Context& context, const Pass& pass, Policy policy, const Linear& linear,
                             const char* name) const;
  Tensor heads(const Tensor& qkv, int which) const;

  std::string prefix_;
  BlockSizes sizes_;
  DType activation_;         // of activations, their gradients and the weights
  Parameter norm1_, norm2_;  // [C]
  Linear qkv_, o_, gate_up_, down_;
};

/// A norm's weight [C] and its gradient.
Parameter make_norm(Context& context, const std::string& name, std::int64_t C, DType activation,
                    GradientMemory& gradients);

}  // namespace compact
