// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw
// ("Parallel random numbers: as easy as 1, 2, 3", SC 2011): a keyed bijection
// of a 128-bit counter, so any element of a stream costs the same, in any
// order, on any rank. Bit for bit what Random123, cuRAND and torch compute.

#ifndef TTRACE_SRC_NUMERIC_PHILOX_H_
#define TTRACE_SRC_NUMERIC_PHILOX_H_

#include <array>
#include <cstdint>

namespace ttrace {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9;  // golden ratio
inline constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85;  // sqrt(3) - 1

// One round, on the four words of a counter. Separate from the loop so that a
// caller may apply it to many counters at once.
constexpr void PhiloxRound(uint32_t& x0, uint32_t& x1, uint32_t& x2,
                           uint32_t& x3, uint32_t key0, uint32_t key1) {
  const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * x0;
  const uint64_t p1 = uint64_t{kPhiloxMultiplier1} * x2;
  const uint32_t y0 = static_cast<uint32_t>(p1 >> 32) ^ x1 ^ key0;
  const uint32_t y2 = static_cast<uint32_t>(p0 >> 32) ^ x3 ^ key1;
  x0 = y0;
  x1 = static_cast<uint32_t>(p1);
  x2 = y2;
  x3 = static_cast<uint32_t>(p0);
}

constexpr PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    PhiloxRound(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return counter;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_PHILOX_H_
