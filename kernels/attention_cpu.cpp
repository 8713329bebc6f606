#include "kernels/attention_cpu.h"

#include "kernels/attention_loops.h"

namespace compact::cpu::COMPACT_ISA {

void attention_forward(const AttentionCall<float>& c) { forward_all<Floats>(c); }
void attention_forward(const AttentionCall<Bf16>& c) { forward_all<Floats>(c); }
void attention_backward(const AttentionCall<float>& c) { backward_all<Floats>(c); }
void attention_backward(const AttentionCall<Bf16>& c) { backward_all<Floats>(c); }

}  // namespace compact::cpu::COMPACT_ISA
