#pragma once

/// The loops of an op are compiled twice, for AVX2 and for AVX-512, in namespaces compact::cpu::avx2 and
/// ::avx512. A header `<op>_cpu.h` declares them with COMPACT_PER_ISA(...), the file `<op>_cpu.cpp` defines
/// them in `namespace compact::cpu::COMPACT_ISA`, and the dispatch file calls COMPACT_CALL(name, args...).
/// Such a file includes no standard template code: an inline function compiled for AVX-512 could be the copy
/// that the linker keeps for everybody.
#define COMPACT_PER_ISA(...)       \
  namespace compact::cpu::avx2 {   \
  __VA_ARGS__                      \
  }                                \
  namespace compact::cpu::avx512 { \
  __VA_ARGS__                      \
  }

#define COMPACT_CALL(name, ...)                                                               \
  (::compact::cpu_isa() == ::compact::Isa::Avx512 ? ::compact::cpu::avx512::name(__VA_ARGS__) \
                                                  : ::compact::cpu::avx2::name(__VA_ARGS__))

namespace compact {

enum class Isa { Avx2, Avx512 };

/// The best instruction set of this machine, found once. The environment variable COMPACT_ISA=avx2 chooses
/// the smaller one (for tests). Throws RunError on a CPU without AVX2, InputError for another COMPACT_ISA.
Isa cpu_isa();

/// True where bf16 products run in hardware (AVX512_BF16, and no smaller instruction set was asked for).
/// Elsewhere they are computed in fp32 from converted operands: correct, and slower.
bool has_bf16_products();

}  // namespace compact
