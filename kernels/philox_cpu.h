#pragma once
#include <immintrin.h>

#include <cstdint>

/// One round of Philox 4x32-10 (compact/core/philox.h) on many counters at once, for the *_cpu.cpp files
/// alone: internal linkage, one instruction set each.
namespace compact::cpu::COMPACT_ISA {

namespace {
// A 32-bit word in each 64-bit lane. Upper halves may hold anything: the product reads the lower ones only.
#ifdef COMPACT_ISA_IS_avx512
typedef std::uint64_t PhiloxLanes __attribute__((vector_size(64)));
// The masked form, with all lanes: the plain one warns of an uninitialised value in g++ 12.
[[gnu::always_inline]] inline PhiloxLanes philox_product(PhiloxLanes a, PhiloxLanes b) {
  return (PhiloxLanes)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, (__m512i)b);
}
#else
typedef std::uint64_t PhiloxLanes __attribute__((vector_size(32)));
[[gnu::always_inline]] inline PhiloxLanes philox_product(PhiloxLanes a, PhiloxLanes b) {
  return (PhiloxLanes)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
#endif

/// The two words of the key, which change from round to round.
struct PhiloxKey {
  std::uint32_t k0, k1;
  [[gnu::always_inline]] explicit PhiloxKey(std::uint64_t key)
      : k0(static_cast<std::uint32_t>(key)), k1(static_cast<std::uint32_t>(key >> 32)) {}
  [[gnu::always_inline]] void advance() {
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
};

[[gnu::always_inline]] inline void philox_round(PhiloxLanes (&c)[4], const PhiloxKey& key) {
  const PhiloxLanes p0 = philox_product(c[0], PhiloxLanes{} + 0xD2511F53u),
                    p1 = philox_product(c[2], PhiloxLanes{} + 0xCD9E8D57u);
  c[0] = (p1 >> 32) ^ c[1] ^ (PhiloxLanes{} + key.k0);
  c[1] = p1;
  c[2] = (p0 >> 32) ^ c[3] ^ (PhiloxLanes{} + key.k1);
  c[3] = p0;
}
}  // namespace

}  // namespace compact::cpu::COMPACT_ISA
