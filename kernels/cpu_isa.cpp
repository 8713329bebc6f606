#include "kernels/cpu_isa.h"

#include <cstdlib>
#include <string_view>

#include "compact/core/error.h"

namespace compact {

namespace {
Isa find_isa() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    run_error("this CPU has no AVX2 and FMA instructions, which compact needs");
  const char* wanted = std::getenv("COMPACT_ISA");
  const std::string_view name = wanted == nullptr ? "" : wanted;
  if (name == "avx2") return Isa::Avx2;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (!name.empty() && (name != "avx512" || !avx512))
    input_error("the environment variable COMPACT_ISA is \"{}\", but must be {}", name,
                avx512 ? "avx2 or avx512" : "avx2 on this CPU");
  return avx512 ? Isa::Avx512 : Isa::Avx2;
}
}  // namespace

Isa cpu_isa() {
  static const Isa isa = find_isa();
  return isa;
}

bool has_bf16_products() {
  static const bool has = cpu_isa() == Isa::Avx512 && __builtin_cpu_supports("avx512bf16");
  return has;
}

}  // namespace compact
