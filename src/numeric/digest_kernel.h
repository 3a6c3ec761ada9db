// The sums of digest.h over a run of bytes.
//
// Thread safety: pure functions and constants.

#ifndef TTRACE_SRC_NUMERIC_DIGEST_KERNEL_H_
#define TTRACE_SRC_NUMERIC_DIGEST_KERNEL_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace ttrace {

inline constexpr size_t kDigestBlock = 1024;         // words
inline constexpr uint32_t kDigestZero = 0x5A3C96E1;  // C
// Vectors of keys are read whole, up to one word behind the last that counts.
inline constexpr size_t kDigestKeys = kDigestBlock + 32;

// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", OOPSLA 2014) of the state behind `x`.
constexpr uint64_t SplitMix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// k_t[j] and K_t(b).
constexpr uint32_t DigestKey(size_t lane, size_t word) {
  constexpr uint64_t kLabel = 0x7474726163650000;  // "ttrace"
  return static_cast<uint32_t>(
      SplitMix64(kLabel + (uint64_t{lane} << 40) + word) >> 32);
}
constexpr uint64_t DigestBlockKey(size_t lane, uint64_t block) {
  return SplitMix64((2 * block + lane) ^ 0xD1B54A32D192ED03) | 1;
}

// What an element adds to the multiset sum.
constexpr uint64_t MixElement32(uint32_t bits) {
  uint32_t a = (bits ^ 0x5BD1E995) * 0x9E3779B1;
  a ^= a >> 15;
  return uint64_t{a} * (a ^ 0x85EBCA77);
}
constexpr uint64_t MixElement64(uint64_t bits) { return SplitMix64(bits); }

struct DigestSums {
  std::array<uint64_t, 2> lane = {};
  uint64_t multiset = 0;
};

// Of `count` elements of 1, 2, 4 or 8 bytes from `p` on, the first of which
// starts at byte `offset` of the global tensor.
DigestSums DigestRun(const std::byte* p, uint64_t offset, size_t count,
                     size_t itemsize);

// How the positional part goes through whole blocks; the sums are the same. Two
// side by side take fewer instructions. One after the other is a single stream,
// which Zen 4 with AVX-512 reads ahead of while it computes; of two it does one
// thing after the other there (measured: bench/README.md).
enum class DigestPace { kTwoBlocks, kOneBlock };
DigestPace PaceOfProcessor();

// One of its two parts alone.
std::array<uint64_t, 2> PositionalRun(const std::byte* p, uint64_t offset,
                                      size_t bytes,
                                      DigestPace pace = PaceOfProcessor());
uint64_t MultisetRun(const std::byte* p, size_t count, size_t itemsize);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_DIGEST_KERNEL_H_
