#include "compact/nn/block.h"

#include <utility>

#include "compact/kernels/elementwise.h"
#include "compact/kernels/rmsnorm.h"
#include "compact/kernels/rope.h"
#include "compact/kernels/swiglu.h"

namespace compact {

Parameter make_norm(Context& context, const std::string& name, std::int64_t C, DType activation,
                    GradientMemory& gradients) {
  Parameter p;
  p.members = {{name, Role::Norm, 0, 1}};
  p.weight = context.arena.persistent(name, {C}, activation, Category::Weights);
  p.gradient = gradients.take(context, name, {C});
  return p;
}

namespace {

// The place of each weight in a block, which numbers its projection.
enum Place : std::uint32_t { kQ, kK, kV, kO, kGate, kUp, kDown };

Linear make_linear(Context& context, const std::string& prefix, std::uint32_t layer, const char* name,
                   std::int64_t n, std::vector<LinearPart> parts, DType activation,
                   const CompactOptions* compact, GradientMemory& gradients) {
  for (LinearPart& part : parts) {
    part.name = prefix + part.name + ".weight";
    part.projection_id += layer * 8;
  }
  return Linear(context, prefix + name, n, std::move(parts), activation, compact, gradients);
}

}  // namespace

Block::Block(Context& context, std::uint32_t layer, const BlockSizes& s, DType activation,
             const CompactOptions* compact, GradientMemory& gradients)
    : prefix_("model.layers." + std::to_string(layer) + "."),
      sizes_(s),
      activation_(activation),
      norm1_(make_norm(context, prefix_ + "input_layernorm.weight", s.C, activation, gradients)),
      norm2_(make_norm(context, prefix_ + "post_attention_layernorm.weight", s.C, activation, gradients)),
      qkv_(make_linear(context, prefix_, layer, "self_attn.qkv", s.C,
                       {{"self_attn.q_proj", Role::Q, s.H * s.D, kQ},
                        {"self_attn.k_proj", Role::K, s.Hkv * s.D, kK},
                        {"self_attn.v_proj", Role::V, s.Hkv * s.D, kV}},
                       activation, compact, gradients)),
      // o_proj is never compressed: its input is the attention output that attention's backward keeps anyway.
      o_(make_linear(context, prefix_, layer, "self_attn.o", s.H * s.D,
                     {{"self_attn.o_proj", Role::O, s.C, kO}}, activation, nullptr, gradients)),
      gate_up_(make_linear(context, prefix_, layer, "mlp.gate_up", s.C,
                           {{"mlp.gate_proj", Role::Gate, s.F, kGate}, {"mlp.up_proj", Role::Up, s.F, kUp}},
                           activation, compact, gradients)),
      down_(make_linear(context, prefix_, layer, "mlp.down", s.F, {{"mlp.down_proj", Role::Down, s.C, kDown}},
                        activation, compact, gradients)) {}

CompressedInputs Block::compressed_inputs() const {
  return {qkv_.fully_compressed(), gate_up_.fully_compressed(), down_.fully_compressed()};
}

std::vector<Parameter> Block::parameters() const {
  std::vector<Parameter> all{norm1_};
  for (const Linear* linear : {&qkv_, &o_})
    all.insert(all.end(), linear->parameters().begin(), linear->parameters().end());
  all.push_back(norm2_);
  for (const Linear* linear : {&gate_up_, &down_})
    all.insert(all.end(), linear->parameters().begin(), linear->parameters().end());
  return all;
}

AttentionShape Block::attention_shape(const Pass& pass) const {
  return {pass.B, pass.T, sizes_.H, sizes_.Hkv, sizes_.D, pass.T};
}

// q [N, H D], k and v [N, Hkv D] as column blocks of qkv; `which` counts 0, 1, 2.
Tensor Block::heads(const Tensor& qkv, int which) const {
  const std::int64_t q = sizes_.H * sizes_.D, kv = sizes_.Hkv * sizes_.D;
  return which == 0 ? qkv.columns(0, q) : qkv.columns(q + (which - 1) * kv, kv);
}

std::vector<Tensor> Block::take_z(Context& context, const Pass& pass, Policy policy, const Linear& linear,
                                  const char* name) const {
  std::vector<Tensor> z;
  for (std::int64_t r : linear.projected_widths())
    z.push_back(take(context.arena, policy, prefix_ + name, {pass.tokens(), r}, activation_));
  return z;
}

// x -> normed1 -> q, k, v -> attention; leaves what attention's backward needs in t.
void Block::attention_forward_half(Context& context, const Pass& pass, const BlockPolicies& policies,
                                   const Tensor& rope_table, BlockTensors& t) const {
  Arena& arena = context.arena;
  const std::int64_t N = pass.tokens(), q = sizes_.H * sizes_.D, kv = sizes_.Hkv * sizes_.D;
  const DType act = activation_;
  t.rstd1 = take(arena, policies.statistics, prefix_ + "rstd1", {N}, DType::F32);
  t.qkv = take(arena, policies.qkv, prefix_ + "qkv", {N, q + 2 * kv}, act);
  {
    ScratchScope scope(arena);
    t.normed1 = take(arena, policies.normed1, prefix_ + "normed1", {N, sizes_.C}, act);
    rmsnorm_forward(context, t.x, norm1_.weight, sizes_.norm_eps, t.normed1, t.rstd1);
    if (policies.normed1 == Policy::Project) {
      t.z_qkv = take_z(context, pass, Policy::Keep, qkv_, "z_qkv");
      qkv_.project(context, pass, t.normed1, t.z_qkv);
    }
    qkv_.forward(context, t.normed1, t.qkv);
    rope(context, t.qkv.columns(0, q + kv), pass.T, 0, rope_table, Rotation::Forward);
  }
  if (policies.normed1 != Policy::Keep) t.normed1 = {};
  t.attention = take(arena, policies.attention, prefix_ + "attention", {N, q}, act);
  t.lse = take(arena, policies.attention, prefix_ + "lse", {pass.B, sizes_.H, pass.T}, DType::F32);
  attention_forward(context, attention_shape(pass), heads(t.qkv, 0), heads(t.qkv, 1), heads(t.qkv, 2),
                    t.attention, t.lse);
  t.residual = take(arena, policies.residual, prefix_ + "residual", {N, sizes_.C}, act);
  t.rstd2 = take(arena, policies.statistics, prefix_ + "rstd2", {N}, DType::F32);
}

// x + o(attention) -> residual -> normed2 -> gate, up.
void Block::gate_up_forward(Context& context, const Pass& pass, const BlockPolicies& policies,
                            BlockTensors& t) const {
  Arena& arena = context.arena;
  const std::int64_t N = pass.tokens();
  const DType act = activation_;
  t.gate_up = take(arena, policies.gate_up, prefix_ + "gate_up", {N, 2 * sizes_.F}, act);
  ScratchScope scope(arena);
  t.normed2 = take(arena, policies.normed2, prefix_ + "normed2", {N, sizes_.C}, act);
  {
    ScratchScope branch_scope(arena);
    const Tensor branch = arena.scratch(prefix_ + "o", {N, sizes_.C}, act);
    o_.forward(context, t.attention, branch);
    residual_rmsnorm_forward(context, t.x, branch, norm2_.weight, sizes_.norm_eps, t.residual, t.normed2,
                             t.rstd2);
  }
  if (policies.normed2 == Policy::Project) {
    t.z_gate_up = take_z(context, pass, Policy::Keep, gate_up_, "z_gate_up");
    gate_up_.project(context, pass, t.normed2, t.z_gate_up);
  }
  gate_up_.forward(context, t.normed2, t.gate_up);
  if (policies.normed2 != Policy::Keep) t.normed2 = {};
}

Tensor Block::forward(Context& context, const Pass& pass, const BlockPolicies& policies,
                      const Tensor& rope_table, BlockTensors& t, const Tensor& out) const {
  Arena& arena = context.arena;
  ScratchScope scope(arena);
  const std::int64_t N = pass.tokens();
  const DType act = activation_;
  attention_forward_half(context, pass, policies, rope_table, t);
  gate_up_forward(context, pass, policies, t);
  t.activation = take(arena, policies.activation, prefix_ + "activation", {N, sizes_.F}, act);
  t.product = take(arena, policies.product, prefix_ + "product", {N, sizes_.F}, act);
  swiglu_forward(context, t.gate_up, t.product, t.activation);
  if (policies.product == Policy::Project) {
    t.z_down = take_z(context, pass, Policy::Keep, down_, "z_down");
    down_.project(context, pass, t.product, t.z_down);
  }
  const Tensor branch = arena.scratch(prefix_ + "down", {N, sizes_.C}, act);
  down_.forward(context, t.product, branch);
  const Tensor next = out.empty() ? arena.saved(prefix_ + "output", {N, sizes_.C}, act) : out;
  add(context, t.residual, branch, next);

  // What is not kept ends with the scope; an empty tensor tells backward to make it again.
  const auto forget = [](Policy policy, Tensor& tensor) {
    if (policy != Policy::Keep) tensor = {};
  };
  forget(policies.statistics, t.rstd1);
  forget(policies.statistics, t.rstd2);
  forget(policies.qkv, t.qkv);
  forget(policies.attention, t.attention);
  forget(policies.attention, t.lse);
  forget(policies.residual, t.residual);
  forget(policies.gate_up, t.gate_up);
  forget(policies.product, t.product);
  return next;
}

void Block::backward(Context& context, const Pass& pass, const BlockPolicies& policies,
                     const Tensor& rope_table, BlockTensors& t, const Tensor& dx) const {
  ScratchScope scope(context.arena);
  if (pass.first) {  // the norms' gradients are added to from the first micro-batch on
    zero(context, norm1_.gradient);
    zero(context, norm2_.gradient);
  }
  if (policies.residual !=
      Policy::Keep) {  // only the input is left: the block's forward again, up to gate and up
    attention_forward_half(context, pass, policies, rope_table, t);
    gate_up_forward(context, pass, policies, t);
  }
  mlp_backward(context, pass, t, dx);
  attention_backward_half(context, pass, rope_table, t, dx);
}

// The weight gradients of one linear; z is made from its input where forward kept none.
void Block::weight_gradient(Context& context, const Pass& pass, const Linear& linear, const Tensor& dout,
                            const Tensor& input, std::vector<Tensor>& z, const char* name) const {
  ScratchScope scope(context.arena);
  if (z.empty() && !linear.projected_widths().empty()) {
    z = take_z(context, pass, Policy::Recompute, linear, name);
    linear.project(context, pass, input, z);
  }
  linear.weight_gradient(context, pass, dout, input, z);
}

// dx [N, C]: gradient of the block's output in, of the post-attention residual out.
void Block::mlp_backward(Context& context, const Pass& pass, BlockTensors& t, const Tensor& dx) const {
  Arena& arena = context.arena;
  ScratchScope scope(arena);
  const std::int64_t N = pass.tokens();
  const DType act = activation_;
  const auto make_normed2 = [&] {
    t.normed2 = take(arena, Policy::Recompute, prefix_ + "normed2", {N, sizes_.C}, act);
    rmsnorm_forward(context, t.residual, norm2_.weight, sizes_.norm_eps, t.normed2, t.rstd2);
  };
  if (t.gate_up.empty()) {
    t.gate_up = take(arena, Policy::Recompute, prefix_ + "gate_up", {N, 2 * sizes_.F}, act);
    make_normed2();
    gate_up_.forward(context, t.normed2, t.gate_up);
  }
  const auto down_weight_gradient = [&](const Tensor& product) {
    weight_gradient(context, pass, down_, dx, product, t.z_down, "z_down");
  };
  const bool product_again = t.product.empty() && t.z_down.empty();
  if (!product_again) down_weight_gradient(t.product);
  {
    ScratchScope product_scope(arena);
    const Tensor dproduct = arena.scratch(prefix_ + "dproduct", {N, sizes_.F}, act);
    down_.input_gradient(context, dx, dproduct);
    // gate_up becomes its gradient; a product that was not kept comes from the same pass, where its gradient
    // was.
    swiglu_backward(context, t.gate_up, t.activation, dproduct, t.gate_up,
                    product_again ? dproduct : Tensor());
    if (product_again) down_weight_gradient(dproduct);
  }
  if (t.normed2.empty() && t.z_gate_up.empty()) make_normed2();
  weight_gradient(context, pass, gate_up_, t.gate_up, t.normed2, t.z_gate_up, "z_gate_up");
  const Tensor dnormed = arena.scratch(prefix_ + "dnormed2", {N, sizes_.C}, act);
  gate_up_.input_gradient(context, t.gate_up, dnormed);
  rmsnorm_backward(context, dnormed, t.residual, norm2_.weight, t.rstd2, dx, norm2_.gradient);
}

// dx [N, C]: gradient of the post-attention residual in, of the block's input out.
void Block::attention_backward_half(Context& context, const Pass& pass, const Tensor& rope_table,
                                    BlockTensors& t, const Tensor& dx) const {
  Arena& arena = context.arena;
  ScratchScope scope(arena);
  const std::int64_t N = pass.tokens(), q = sizes_.H * sizes_.D, kv = sizes_.Hkv * sizes_.D;
  const DType act = activation_;
  const Tensor dqkv = arena.scratch(prefix_ + "dqkv", {N, q + 2 * kv}, act);
  {
    ScratchScope attention_scope(arena);
    std::vector<Tensor> none;
    weight_gradient(context, pass, o_, dx, t.attention, none, "");
    const Tensor dattention = arena.scratch(prefix_ + "dattention", {N, q}, act);
    o_.input_gradient(context, dx, dattention);
    attention_backward(context, attention_shape(pass), heads(t.qkv, 0), heads(t.qkv, 1), heads(t.qkv, 2),
                       t.attention, t.lse, dattention, heads(dqkv, 0), heads(dqkv, 1), heads(dqkv, 2));
    rope(context, dqkv.columns(0, q + kv), pass.T, 0, rope_table, Rotation::Backward);
  }
  {
    ScratchScope normed_scope(arena);
    if (t.normed1.empty() && t.z_qkv.empty()) {
      t.normed1 = take(arena, Policy::Recompute, prefix_ + "normed1", {N, sizes_.C}, act);
      rmsnorm_forward(context, t.x, norm1_.weight, sizes_.norm_eps, t.normed1, t.rstd1);
    }
    weight_gradient(context, pass, qkv_, dqkv, t.normed1, t.z_qkv, "z_qkv");
  }
  const Tensor dnormed = arena.scratch(prefix_ + "dnormed1", {N, sizes_.C}, act);
  qkv_.input_gradient(context, dqkv, dnormed);
  rmsnorm_backward(context, dnormed, t.x, norm1_.weight, t.rstd1, dx, norm1_.gradient);
}

void Block::decode(Context& context, std::int64_t first, const Tensor& rope_table, const BlockCache& cache,
                   const Tensor& x) const {
  Arena& arena = context.arena;
  ScratchScope scope(arena);
  const std::int64_t T = x.rows(), q = sizes_.H * sizes_.D, kv = sizes_.Hkv * sizes_.D;
  const DType act = activation_;
  const Tensor rstd = arena.scratch("rstd", {T}, DType::F32);
  const Tensor normed = arena.scratch("normed", {T, sizes_.C}, act);
  const Tensor branch = arena.scratch("branch", {T, sizes_.C}, act);
  const Tensor qkv = arena.scratch("qkv", {T, q + 2 * kv}, act);
  const Tensor attention = arena.scratch("attention", {T, q}, act);
  const Tensor lse = arena.scratch("lse", {1, sizes_.H, T}, DType::F32);
  const Tensor gate_up = arena.scratch("gate_up", {T, 2 * sizes_.F}, act);
  const Tensor product = arena.scratch("product", {T, sizes_.F}, act);

  rmsnorm_forward(context, x, norm1_.weight, sizes_.norm_eps, normed, rstd);
  qkv_.forward(context, normed, qkv);
  rope(context, qkv.columns(0, q + kv), T, first, rope_table, Rotation::Forward);
  copy(context, heads(qkv, 1), cache.k.row_range(first, T));
  copy(context, heads(qkv, 2), cache.v.row_range(first, T));
  attention_forward(context, {1, T, sizes_.H, sizes_.Hkv, sizes_.D, first + T}, heads(qkv, 0),
                    cache.k.row_range(0, first + T), cache.v.row_range(0, first + T), attention, lse);
  o_.forward(context, attention, branch);
  residual_rmsnorm_forward(context, x, branch, norm2_.weight, sizes_.norm_eps, x, normed, rstd);
  gate_up_.forward(context, normed, gate_up);
  swiglu_forward(context, gate_up, product, {});
  down_.forward(context, product, branch);
  add(context, x, branch, x);
}

}  // namespace compact
