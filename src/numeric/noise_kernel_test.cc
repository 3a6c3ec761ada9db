#include "src/numeric/noise_kernel.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "src/numeric/fixed_vectors.h"
#include "src/numeric/noise.h"

namespace ttrace::noise_kernel_test {
namespace {

constexpr NoiseKey kKey = {0x123456789ABCDEFULL, 0xFEDCBA9876543210ULL};

// On every instruction set that this machine has.
class NoiseKernel : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }

  template <class Bits>
  void ExpectElementwise(const std::vector<Bits>& values, int p,
                         uint64_t first_tile) const {
    const size_t tiles = values.size() / kNoiseTile;
    // Behind the last tile nothing is touched, and neither place is aligned.
    std::vector<std::byte> from(values.size() * sizeof(Bits) + 2);
    std::vector<std::byte> to(from.size() + 2, std::byte{0x5A});
    std::memcpy(from.data() + 2, values.data(), values.size() * sizeof(Bits));
    PerturbTiles(kKey, first_tile, tiles, p, from.data() + 2, to.data() + 2);
    EXPECT_EQ(to[1], std::byte{0x5A});
    EXPECT_EQ(to[to.size() - 2], std::byte{0x5A});
    std::vector<uint32_t> words(kNoiseTile);
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % kNoiseTile == 0) {
        NoiseWords(kKey, first_tile + i / kNoiseTile, 1, words.data());
      }
      Bits got;
      std::memcpy(&got, to.data() + 2 + i * sizeof(Bits), sizeof(Bits));
      ASSERT_EQ(got, static_cast<Bits>(
                         PerturbBits(values[i], words[i % kNoiseTile], p)))
          << std::hex << values[i] << " " << hwy::TargetName(GetParam());
    }
  }

  static std::vector<uint16_t> AllOf16Bits() {
    std::vector<uint16_t> values(65536);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<uint16_t>(i);
    }
    return values;
  }
};

TEST_P(NoiseKernel, WordsAreThoseOfTheElements) {
  std::vector<uint32_t> words(kNoiseTile);
  for (const uint64_t tile : {uint64_t{0}, uint64_t{7}, uint64_t{1} << 40}) {
    NoiseWords(kKey, tile, 1, words.data());
    for (uint64_t i = 0; i < kNoiseTile; ++i) {
      const float uniform = UniformAt(kKey, tile * kNoiseTile + i);
      EXPECT_EQ(
          (static_cast<float>(static_cast<int32_t>(words[i]) >> 8) + 0.5F) *
              0x1p-23F,
          uniform);
    }
  }
}

TEST_P(NoiseKernel, EveryBF16) { ExpectElementwise(AllOf16Bits(), 7, 3); }
TEST_P(NoiseKernel, EveryF16) { ExpectElementwise(AllOf16Bits(), 10, 3); }

TEST_P(NoiseKernel, F32OfEveryExponent) {
  std::mt19937 rng(7);
  std::vector<uint32_t> values;
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    const uint32_t size = exponent << 23;
    for (const uint32_t sign : {0U, 0x80000000U}) {
      for (const uint32_t fraction :
           {0U, 1U, 0x3FFFFFU, 0x400000U, 0x7FFFFFU}) {
        values.push_back(sign | size | fraction);
      }
      for (int i = 0; i < 59; ++i) {
        values.push_back(sign | size |
                         (static_cast<uint32_t>(rng()) & 0x7FFFFFU));
      }
    }
  }
  ExpectElementwise(values, 23, (uint64_t{1} << 33) + 5);
}

INSTANTIATE_TEST_SUITE_P(AllTargets, NoiseKernel,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

// Its definition, x (1 + u n / 2^24) rounded once, in integers of 128 bits.
TEST(PerturbBits, IsTheExactProductRounded) {
  std::mt19937 rng(11);
  int moved = 0;
  for (int i = 0; i < 200000; ++i) {
    // Powers of two often: that is where spacing changes.
    const uint32_t fraction =
        i % 4 == 0 ? 0 : static_cast<uint32_t>(rng()) & 0x7FFFFFU;
    const uint32_t bits =
        (1 + static_cast<uint32_t>(rng() % 253)) << 23 | fraction;
    const auto word = static_cast<uint32_t>(rng());
    const auto x = std::bit_cast<float>(bits);
    if (x < 1.5F * 0x1p-126F) continue;
    const uint32_t got = PerturbBits(bits, word, 23);
    ASSERT_LE(got - bits + 1, 2U);
    const int64_t n = 2 * (static_cast<int32_t>(word) >> 8) + 1;
    // In units of 2^-49 of the last place.
    const auto m = static_cast<__int128>(fraction | 0x800000U);
    const __int128 exact = (m << 49) + 2 * m * n;
    const auto distance = [&](uint32_t other) {
      // A neighbour may lie in the binade below.
      __int128 at = static_cast<__int128>((other & 0x7FFFFFU) | 0x800000U)
                    << 49;
      if (other >> 23 < bits >> 23) at >>= 1;
      if (other >> 23 > bits >> 23) at <<= 1;
      return at > exact ? at - exact : exact - at;
    };
    for (const uint32_t other : {bits - 1, bits, bits + 1}) {
      if (other != got) {
        EXPECT_LT(distance(got), distance(other)) << x;
      }
    }
    moved += got != bits ? 1 : 0;
  }
  EXPECT_GT(moved, 40000);
  EXPECT_LT(moved, 100000);
}

}  // namespace
}  // namespace ttrace::noise_kernel_test
