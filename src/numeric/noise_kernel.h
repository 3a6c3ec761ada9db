// Noise of one rounding, in integers.
//
// With m the significand of x (its top bit that of 2^p, p = 7, 10 or 23) and
// the noise n / 2^24, n odd, x (1 + u n / 2^24) lies m n / 2^(p + 25) units of
// the last place from x: less than one, and never just between two numbers,
// because n is odd. So rounding it is a comparison of the product with one
// half, or with one quarter below a power of two, where numbers are twice as
// dense; and what it makes of x is the next number or x itself.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_NUMERIC_NOISE_KERNEL_H_
#define TTRACE_SRC_NUMERIC_NOISE_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "src/numeric/noise.h"
#include "src/numeric/philox.h"

namespace ttrace {

inline constexpr uint64_t kNoiseTile = 64;      // elements
inline constexpr uint64_t kNoiseCounters = 16;  // that make a tile

// The random words of 64 * `tiles` elements from 64 * `first_tile` on.
void NoiseWords(const NoiseKey& key, uint64_t first_tile, size_t tiles,
                uint32_t* words);

// Those of one counter.
constexpr PhiloxCounter NoiseWordsOf(const NoiseKey& key, uint64_t counter) {
  return Philox4x32(
      {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
       static_cast<uint32_t>(key.name), static_cast<uint32_t>(key.name >> 32)},
      {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}

// Whole tiles of consecutive elements of a floating format of 16 or 32 bits
// with `p` bits of fraction (7, 10 or 23), from `from` to `to`, which may be
// the same.
void PerturbTiles(const NoiseKey& key, uint64_t first_tile, size_t tiles, int p,
                  const std::byte* from, std::byte* to);

// One element: `bits` of such a format, and its random word. Zeros, NaN and Inf
// stay, and no finite value becomes Inf.
constexpr uint32_t PerturbBits(uint32_t bits, uint32_t word, int p) {
  const uint32_t sign = p == 23 ? uint32_t{1} << 31 : uint32_t{1} << 15;
  const uint32_t infinity = (sign - 1) & ~((uint32_t{1} << p) - 1);
  const uint32_t size = bits & (sign - 1);
  if (size == 0 || size >= infinity) return bits;
  const bool down = (word >> 31) != 0;
  // |n|, and m, with their top bits at 2^31.
  const uint32_t n = (((down ? ~word : word) & 0xFFFFFF00U) << 1) | 256U;
  uint32_t m = (size << (31 - p)) | 0x80000000U;
  // From 1.5 times the smallest normal number on down, noise is that of the
  // middle of the lowest binade, whose spacing all of these have.
  if (size < uint32_t{3} << (p - 1)) m = 0xC0000000U;
  const auto product = static_cast<uint32_t>((uint64_t{m} * n) >> 32);
  const uint32_t half =
      down && m == 0x80000000U ? uint32_t{1} << 30 : uint32_t{1} << 31;
  if (product < half) return bits;
  if (down) return bits - 1;
  return size + 1 == infinity ? bits : bits + 1;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_NOISE_KERNEL_H_
