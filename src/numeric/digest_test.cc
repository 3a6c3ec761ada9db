#include "src/numeric/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "src/numeric/digest_kernel.h"
#include "src/numeric/fixed_vectors.h"

namespace ttrace::digest_test {
namespace {

using Bytes = std::vector<std::byte>;
using Lanes = std::array<uint64_t, 2>;

Bytes RandomBytes(size_t count, std::mt19937_64& rng) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng());
  return bytes;
}

// The definition, byte by byte: a word is the sum of its bytes' places.
Lanes ByDefinition(const Bytes& bytes, uint64_t offset) {
  Lanes out = {};
  for (const std::byte byte : bytes) {
    const uint64_t word = offset / 4;
    const int shift = static_cast<int>(8 * (offset % 4));
    const auto zero = static_cast<uint8_t>(kDigestZero >> shift);
    const auto value =
        static_cast<uint64_t>(std::to_integer<uint8_t>(byte) ^ zero);
    const uint64_t term = value << shift;
    for (size_t t = 0; t < 2; ++t) {
      out[t] += DigestBlockKey(t, word / kDigestBlock) *
                DigestKey(t, word % kDigestBlock) * term;
    }
    ++offset;
  }
  return out;
}

template <class T>
uint64_t MultisetByDefinition(const Bytes& bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T x;
    std::memcpy(&x, bytes.data() + i, sizeof(T));
    sum += sizeof(T) == 8 ? MixElement64(x)
                          : MixElement32(static_cast<uint32_t>(x));
  }
  return sum;
}

// On every instruction set that this machine has.
class Digest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(Digest, IsItsDefinitionFromAnyByteToAny) {
  std::mt19937_64 rng(1);
  for (size_t count = 0; count < 150; ++count) {
    const Bytes bytes = RandomBytes(count, rng);
    for (const uint64_t offset :
         {uint64_t{0}, uint64_t{1}, uint64_t{4094}, uint64_t{4000 + count},
          (uint64_t{1} << 40) + 3}) {
      EXPECT_EQ(PositionalRun(bytes.data(), offset, count),
                ByDefinition(bytes, offset))
          << offset << " " << count;
    }
  }
  const Bytes bytes = RandomBytes(20011, rng);
  for (const DigestPace pace :
       {DigestPace::kOneBlock, DigestPace::kTwoBlocks}) {
    EXPECT_EQ(PositionalRun(bytes.data(), 4095, bytes.size(), pace),
              ByDefinition(bytes, 4095));
  }
}

TEST_P(Digest, TheMultisetIsItsDefinition) {
  std::mt19937_64 rng(2);
  for (size_t words = 0; words < 50; ++words) {
    const Bytes bytes = RandomBytes(8 * words, rng);
    const std::byte* p = bytes.data();
    EXPECT_EQ(MultisetRun(p, 8 * words, 1),
              MultisetByDefinition<uint8_t>(bytes));
    EXPECT_EQ(MultisetRun(p, 4 * words, 2),
              MultisetByDefinition<uint16_t>(bytes));
    EXPECT_EQ(MultisetRun(p, 2 * words, 4),
              MultisetByDefinition<uint32_t>(bytes));
    EXPECT_EQ(MultisetRun(p, words, 8), MultisetByDefinition<uint64_t>(bytes));
  }
}

TEST_P(Digest, BothAtOnceAreEachByItself) {
  std::mt19937_64 rng(3);
  const Bytes bytes = RandomBytes(24000, rng);
  for (const size_t itemsize : {1U, 2U, 4U, 8U}) {
    const DigestSums both =
        DigestRun(bytes.data(), 840, bytes.size() / itemsize, itemsize);
    EXPECT_EQ(both.lane, PositionalRun(bytes.data(), 840, bytes.size()));
    EXPECT_EQ(both.multiset,
              MultisetRun(bytes.data(), bytes.size() / itemsize, itemsize));
  }
}

// What traces hold: the definition may not change either.
TEST_P(Digest, IsWhatItHasAlwaysBeen) {
  Bytes bytes(36864);
  for (uint32_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>((i * 0x9E3779B1U) >> 24);
  }
  EXPECT_EQ(PositionalRun(bytes.data(), 0, 36864),
            (Lanes{0xDED825F6B1558714, 0xB281DD872B85EAAF}));
  EXPECT_EQ(PositionalRun(bytes.data(), 4095, 20011),
            (Lanes{0xCE220FFB1E3A6EC6, 0x6FE09AA16FC7892C}));
  EXPECT_EQ(PositionalRun(bytes.data(), uint64_t{1} << 41, 36864),
            (Lanes{0xC161676F8E66E8E4, 0x54CDE7B735044BE9}));
  const uint64_t multisets[] = {0xD67F83C2A3184218, 0x0998399782B15712,
                                0x29110B3837A1AC4A, 0x1CC39718624BAE98};
  for (size_t i = 0; i < 4; ++i) {
    const size_t itemsize = size_t{1} << i;
    const DigestSums both =
        DigestRun(bytes.data(), 8152, 36000 / itemsize, itemsize);
    EXPECT_EQ(both.lane, (Lanes{0x0ED8BB773E7AC35D, 0x07102BD92D359D47}));
    EXPECT_EQ(both.multiset, multisets[i]);
  }
}

// Segments of one dimension in random order, dealt to `ranks`.
std::vector<DimLayout> Deal(int64_t size, size_t ranks, std::mt19937_64& rng) {
  std::vector<DimLayout> out(ranks);
  for (DimLayout& dim : out) dim.global_size = size;
  std::vector<Segment> segments;
  for (int64_t begin = 0; begin < size;) {
    const auto step =
        std::min(size - begin, 1 + static_cast<int64_t>(rng() % 9));
    segments.push_back({begin, step});
    begin += step;
  }
  std::shuffle(segments.begin(), segments.end(), rng);
  for (const Segment& segment : segments) {
    out[rng() % ranks].segments.push_back(segment);
  }
  return out;
}

// Shards of random cuts in two dimensions, with gaps in memory, or transposed.
TEST_P(Digest, ShardsAddUpToTheWholeForAllElementSizes) {
  std::mt19937_64 rng(4);
  const DType dtypes[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kF64};
  for (int round = 0; round < 24; ++round) {
    const DType dtype = dtypes[round % 4];
    const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
    const int64_t rows = 1 + static_cast<int64_t>(rng() % 40);
    const int64_t cols = 1 + static_cast<int64_t>(rng() % 200);
    const Bytes whole =
        RandomBytes(static_cast<size_t>(rows * cols) * itemsize, rng);
    Layout layout;
    layout.dims.push_back({{{0, rows}}, rows});
    layout.dims.push_back({{{0, cols}}, cols});
    const int64_t strides[] = {cols, 1};
    TensorDigest want;
    ASSERT_TRUE(AddDigest({whole.data(), dtype, strides, layout}, &want).ok());
    EXPECT_EQ(want.positional, ByDefinition(whole, 0));
    EXPECT_EQ(want.count, rows * cols);

    TensorDigest sum;
    for (const DimLayout& row_cut : Deal(rows, 3, rng)) {
      for (const DimLayout& col_cut : Deal(cols, 2, rng)) {
        Layout shard;
        shard.dims = {row_cut, col_cut};
        const int64_t local_rows = row_cut.local_size();
        const int64_t local_cols = col_cut.local_size();
        int64_t apart[] = {local_cols + 3, 1};
        if (round % 3 == 0) {
          apart[0] = 1;
          apart[1] = local_rows + 1;
        }
        Bytes memory(static_cast<size_t>((local_rows + 1) * (local_cols + 3)) *
                     itemsize);
        ForEachRun(shard, apart, [&](const LocalRun& run) {
          for (int64_t i = 0; i < run.count; ++i) {
            std::memcpy(
                memory.data() +
                    static_cast<size_t>(run.at + i * run.stride) * itemsize,
                whole.data() +
                    (run.logical + static_cast<uint64_t>(i)) * itemsize,
                itemsize);
          }
        });
        TensorDigest part;
        ASSERT_TRUE(
            AddDigest({memory.data(), dtype, apart, shard}, &part).ok());
        sum.Merge(part);
      }
    }
    EXPECT_EQ(sum, want) << Info(dtype).torch_name;
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets, Digest,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

// What "never missed" rests on.
TEST(DigestKeys, AreDistinctAndNotZeroAndOddForBlocks) {
  for (size_t lane = 0; lane < 2; ++lane) {
    std::set<uint32_t> keys;
    for (size_t j = 0; j < kDigestBlock; ++j) keys.insert(DigestKey(lane, j));
    EXPECT_EQ(keys.size(), kDigestBlock);
    EXPECT_EQ(keys.count(0), 0U);
    for (uint64_t b = 0; b < 1000; ++b) {
      EXPECT_EQ(DigestBlockKey(lane, b) % 2, 1U);
      EXPECT_NE(DigestBlockKey(lane, b), DigestBlockKey(lane, b + 1));
    }
  }
}

// 512 KiB: 128 blocks.
class DigestQuality : public testing::Test {
 protected:
  std::mt19937_64 rng{5};
  Bytes bytes = RandomBytes(size_t{1} << 19, rng);

  Lanes Of(const Bytes& from) const {
    return PositionalRun(from.data(), 0, from.size());
  }
  uint32_t Word(size_t at) const {
    uint32_t word;
    std::memcpy(&word, bytes.data() + 4 * at, 4);
    return word;
  }
  void Put(size_t at, uint32_t word) {
    std::memcpy(bytes.data() + 4 * at, &word, 4);
  }
  size_t Words() const { return bytes.size() / 4; }
};

TEST_F(DigestQuality, EveryBitOfAWordCounts) {
  Bytes word(4096);
  const Lanes before = Of(word);
  std::set<Lanes> seen = {before};
  for (size_t bit = 0; bit < 8 * word.size(); ++bit) {
    word[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    const Lanes after = Of(word);
    EXPECT_NE(after[0], before[0]) << bit;
    EXPECT_NE(after[1], before[1]) << bit;
    seen.insert(after);
    word[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
  EXPECT_EQ(seen.size(), 8 * word.size() + 1);
}

TEST_F(DigestQuality, SwappedWordsAreSeenAndAreTheSameMultiset) {
  const Lanes before = Of(bytes);
  const uint64_t multiset = MultisetRun(bytes.data(), Words(), 4);
  for (int i = 0; i < 200; ++i) {
    const size_t a = rng() % Words();
    const size_t b =
        i % 2 == 0 ? rng() % Words()
                   : a / kDigestBlock * kDigestBlock + rng() % kDigestBlock;
    const uint32_t x = Word(a);
    const uint32_t y = Word(b);
    if (x == y) continue;
    Put(a, y);
    Put(b, x);
    EXPECT_NE(Of(bytes)[0], before[0]);
    EXPECT_NE(Of(bytes)[1], before[1]);
    EXPECT_EQ(MultisetRun(bytes.data(), Words(), 4), multiset);
    Put(a, x);
    Put(b, y);
  }
}

TEST_F(DigestQuality, ShardsOfZerosThatAreMissingOrTwiceAreSeen) {
  const Bytes zeros(4096);
  const Lanes none = {};
  EXPECT_NE(PositionalRun(zeros.data(), 0, 4096), none);
  EXPECT_NE(PositionalRun(zeros.data(), 0, 4096),
            PositionalRun(zeros.data(), 4096, 4096));
  EXPECT_NE(PositionalRun(zeros.data(), 0, 1), none);
}

// The upper 16 bits of a lane stand for a digest that is short enough to
// collide: about one change of 65536 may leave them as they are, whether it
// is of random words, of signs, of neighbours or of whole blocks. A change
// moves a lane by the sum of changed terms, so those are all that is computed.
TEST_F(DigestQuality, UpperBitsOfALaneCollideAsOftenAsRandomOnes) {
  constexpr int kTrials = 400000;
  enum Kind { kRandom, kSigns, kNeighbours, kLowBits };
  for (const Kind kind : {kRandom, kSigns, kNeighbours, kLowBits}) {
    int same[2] = {};
    for (int i = 0; i < kTrials; ++i) {
      uint64_t moved[2] = {};
      const uint64_t first = rng() % 1000000;
      const int changes = 2 + static_cast<int>(rng() % 6);
      for (int c = 0; c < changes; ++c) {
        const uint64_t at = kind == kNeighbours
                                ? first + static_cast<uint64_t>(c)
                                : rng() % 1000000;
        const auto before = static_cast<uint32_t>(rng());
        uint32_t after = static_cast<uint32_t>(rng());
        if (kind == kSigns) after = before ^ 0x80000000U;
        if (kind == kLowBits) after = before ^ 0x00010000U;
        for (size_t t = 0; t < 2; ++t) {
          const uint64_t key = DigestKey(t, at % kDigestBlock);
          moved[t] +=
              DigestBlockKey(t, at / kDigestBlock) *
              (key * (after ^ kDigestZero) - key * (before ^ kDigestZero));
        }
      }
      for (size_t t = 0; t < 2; ++t) {
        // Not moved by more than the last of them, up or down.
        const uint64_t top = moved[t] >> 48;
        same[t] += top == 0 || top == 0xFFFF ? 1 : 0;
      }
    }
    // 2 of 65536 expected: 12.2, of which 6 standard deviations are 21. The
    // few trials that change nothing at all (a word twice, back to what it
    // was) are far fewer.
    for (const int count : same) {
      EXPECT_LE(count, 34) << kind;
      EXPECT_GE(count, 1) << kind;
    }
  }
}

// Every output bit turns for half of all changes of one input bit, of the
// upper half of a lane; lower ones need not, which is why an id must not be
// cut out of them.
TEST_F(DigestQuality, ASingleBitTurnsHalfOfTheUpperOnes) {
  int turned[32] = {};
  constexpr int kTrials = 20000;
  for (int i = 0; i < kTrials; ++i) {
    const size_t at = rng() % (uint64_t{1} << 30);
    const uint32_t bit = 1U << (rng() % 32);
    const auto word = static_cast<uint32_t>(rng());
    const uint64_t key =
        DigestBlockKey(0, at / kDigestBlock) * DigestKey(0, at % kDigestBlock);
    const uint64_t rest = rng();
    const uint64_t difference =
        (rest + key * word) ^ (rest + key * (word ^ bit));
    for (int b = 0; b < 32; ++b) {
      turned[b] += static_cast<int>((difference >> (32 + b)) & 1);
    }
  }
  for (const int count : turned) {
    // 7 standard deviations.
    EXPECT_NEAR(count, kTrials / 2, 500);
  }
}

// All of the 16-bit patterns, and pairs of them: sums of equal size from other
// elements would be taken for a permutation.
TEST(DigestMultiset, ElementsAndPairsOfThemAreToldApart) {
  std::vector<uint64_t> mixed(65536);
  for (uint32_t x = 0; x < mixed.size(); ++x) mixed[x] = MixElement32(x);
  std::vector<uint64_t> sums;
  for (size_t a = 0; a < mixed.size(); a += 31) {
    for (size_t b = a; b < mixed.size(); b += 31) {
      sums.push_back(mixed[a] + mixed[b]);
    }
  }
  std::sort(sums.begin(), sums.end());
  EXPECT_EQ(std::adjacent_find(sums.begin(), sums.end()), sums.end());
  std::sort(mixed.begin(), mixed.end());
  EXPECT_EQ(std::adjacent_find(mixed.begin(), mixed.end()), mixed.end());
}

}  // namespace
}  // namespace ttrace::digest_test
