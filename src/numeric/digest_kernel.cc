#include "src/numeric/digest_kernel.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "src/numeric/fixed_vectors.h"
#include "src/numeric/read_ahead.h"

// Highway compiles the code between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE once per instruction set by re-including this file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/numeric/digest_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <hwy/highway.h>

#ifndef TTRACE_SRC_NUMERIC_DIGEST_KERNEL_CC_ONCE_
#define TTRACE_SRC_NUMERIC_DIGEST_KERNEL_CC_ONCE_
namespace ttrace::digest {

using Keys = std::array<uint32_t, kDigestKeys>;

constexpr Keys MakeKeys(size_t lane) {
  Keys keys = {};
  for (size_t i = 0; i < kDigestBlock; ++i) keys[i] = DigestKey(lane, i);
  return keys;
}
alignas(64) inline constexpr Keys kKeys[2] = {MakeKeys(0), MakeKeys(1)};

inline constexpr size_t kBlockBytes = 4 * kDigestBlock;

// Bytes ahead of two blocks side by side, into the first level of cache: what
// processors that take two are fastest with (bench/README.md).
inline constexpr size_t kTwoAhead = 2 * kBlockBytes;

// Bytes of a word, from its byte `begin` on: (w ^ C) of those alone.
inline uint32_t PartOfWord(const uint8_t* p, size_t begin, size_t bytes) {
  uint32_t word = 0;
  uint32_t mask = 0;
  for (size_t i = 0; i < bytes; ++i) {
    word |= uint32_t{p[i]} << (8 * (begin + i));
    mask |= uint32_t{0xFF} << (8 * (begin + i));
  }
  return (word ^ kDigestZero) & mask;
}

template <class T>
uint64_t Mix(const uint8_t* p) {
  T bits;
  std::memcpy(&bits, p, sizeof(bits));
  if constexpr (sizeof(T) == 8) return MixElement64(bits);
  return MixElement32(static_cast<uint32_t>(bits));
}

template <class T>
uint64_t MixAll(const uint8_t* p, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += Mix<T>(p + i * sizeof(T));
  return sum;
}

}  // namespace ttrace::digest
#endif  // TTRACE_SRC_NUMERIC_DIGEST_KERNEL_CC_ONCE_

// The namespaces of instruction sets are shared by all kernels: names need one
// of their own.
HWY_BEFORE_NAMESPACE();
namespace ttrace::digest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

// Where there is no vector unit that Highway knows.
void Words(const uint8_t* p, size_t word, size_t count, uint64_t* sums) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t x = PartOfWord(p + 4 * i, 0, 4);
    sums[0] += x * kKeys[0][word + i];
    sums[1] += x * kKeys[1][word + i];
  }
}

template <class T>
uint64_t Elements(const uint8_t* p, size_t count) {
  return MixAll<T>(p, count);
}

template <size_t kBlocks, class T>
void WholeBlocks(const uint8_t* p, uint64_t (*lanes)[2], uint64_t* multiset) {
  for (size_t b = 0; b < kBlocks; ++b, p += kBlockBytes) {
    Words(p, 0, kDigestBlock, lanes[b]);
    if constexpr (!std::is_void_v<T>) {
      *multiset += MixAll<T>(p, kBlockBytes / sizeof(T));
    }
  }
}

#else

using U32 = hn::ScalableTag<uint32_t>;
using U64 = hn::Repartition<uint64_t, U32>;
using U8 = hn::Repartition<uint8_t, U32>;
using Vec32 = hn::Vec<U32>;
using Vec64 = hn::Vec<U64>;

HWY_INLINE Vec32 LoadWords(const uint8_t* p) {
  return hn::BitCast(U32(), hn::LoadU(U8(), p));
}

// The odd words at the places of the even ones, of which products are made.
HWY_INLINE Vec32 Odd(Vec32 x) {
  return hn::BitCast(U32(), hn::ShiftRight<32>(hn::BitCast(U64(), x)));
}

HWY_INLINE uint64_t SumOf(Vec64 x) {
#if HWY_MAX_BYTES == 64
  // SumOfLanes of AVX-512 adds signed numbers, which may not overflow.
  const hn::Half<U64> half;
  return hn::GetLane(hn::SumOfLanes(
      half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x))));
#else
  return hn::GetLane(hn::SumOfLanes(U64(), x));
#endif
}

// Keys of as many words as a vector holds. The odd ones are shifted as the
// words are, or loaded from one word further, which crosses lines of cache:
// better only where shifts are what there is enough to do of.
template <bool kShifted>
struct KeysOfVector {
  HWY_INLINE explicit KeysOfVector(const uint32_t* keys)
      : even(hn::LoadU(U32(), keys)),
        odd(kShifted ? Odd(even) : hn::LoadU(U32(), keys + 1)) {}

  HWY_INLINE Vec64 Times(Vec32 x, Vec32 odd_of_x) const {
    return hn::Add(hn::MulEven(x, even), hn::MulEven(odd_of_x, odd));
  }

  Vec32 even;
  Vec32 odd;
};

// Whole words of one block.
void Words(const uint8_t* p, size_t word, size_t count, uint64_t* sums) {
  const U32 d;
  const U64 dw;
  const size_t lanes = hn::Lanes(d);
  const Vec32 zero = hn::Set(d, kDigestZero);
  Vec64 sum0 = hn::Zero(dw);
  Vec64 sum1 = hn::Zero(dw);
  const auto add = [&](Vec32 x, size_t at) HWY_ATTR {
    const Vec32 odd = Odd(x);
    sum0 =
        hn::Add(sum0, KeysOfVector<true>(kKeys[0].data() + at).Times(x, odd));
    sum1 =
        hn::Add(sum1, KeysOfVector<true>(kKeys[1].data() + at).Times(x, odd));
  };
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    add(hn::Xor(LoadWords(p + 4 * i), zero), word + i);
  }
  if (i < count) {
    // Words behind the last may not count, not even as zeros.
    HWY_ALIGN uint8_t tail[HWY_MAX_BYTES] = {};
    std::memcpy(tail, p + 4 * i, 4 * (count - i));
    add(hn::IfThenElseZero(hn::FirstN(d, count - i),
                           hn::Xor(LoadWords(tail), zero)),
        word + i);
  }
  sums[0] += SumOf(sum0);
  sums[1] += SumOf(sum1);
}

// As MixElement32.
HWY_INLINE void MixLanes(Vec32 bits, Vec64* sum) {
  const U32 d;
  const Vec32 c = hn::Set(d, uint32_t{0x85EBCA77});
  Vec32 a = hn::Mul(hn::Xor(bits, hn::Set(d, uint32_t{0x5BD1E995})),
                    hn::Set(d, uint32_t{0x9E3779B1}));
  a = hn::Xor(a, hn::ShiftRight<15>(a));
  const Vec32 odd = Odd(a);
  // Exclusive or a second time: shifts have fewer units.
  *sum = hn::Add(*sum, hn::Add(hn::MulEven(a, hn::Xor(a, c)),
                               hn::MulEven(odd, hn::Xor(odd, c))));
}

// All elements of a vector.
template <class T>
HWY_INLINE void MixVector(Vec32 x, Vec64* sum) {
  const Vec32 low = hn::Set(U32(), sizeof(T) == 1 ? 0xFFU : 0xFFFFU);
  if constexpr (sizeof(T) == 4) {
    MixLanes(x, sum);
  } else if constexpr (sizeof(T) == 2) {
    MixLanes(hn::And(x, low), sum);
    MixLanes(hn::ShiftRight<16>(x), sum);
  } else {
    MixLanes(hn::And(x, low), sum);
    MixLanes(hn::And(hn::ShiftRight<8>(x), low), sum);
    MixLanes(hn::And(hn::ShiftRight<16>(x), low), sum);
    MixLanes(hn::ShiftRight<24>(x), sum);
  }
}

template <class T>
uint64_t Elements(const uint8_t* p, size_t count) {
  const size_t bytes = count * sizeof(T);
  size_t i = 0;
  Vec64 sum = hn::Zero(U64());
  if constexpr (sizeof(T) <= 4) {
    for (; i + HWY_MAX_BYTES <= bytes; i += HWY_MAX_BYTES) {
      MixVector<T>(LoadWords(p + i), &sum);
    }
  }
  return SumOf(sum) + MixAll<T>(p + i, count - i / sizeof(T));
}

// Blocks side by side, so that their keys are loaded and shifted once. T:
// elements of the multiset, in the same pass, in which memory is then read at
// an even pace; void: without.
template <size_t kBlocks, class T>
HWY_INLINE void WholeBlocks(const uint8_t* p, uint64_t (*lanes)[2],
                            uint64_t* multiset) {
  constexpr bool kAlone = std::is_void_v<T>;
  const U32 d;
  const U64 dw;
  const Vec32 zero = hn::Set(d, kDigestZero);
  Vec64 sum0[kBlocks];
  Vec64 sum1[kBlocks];
  Vec64 mixed = hn::Zero(dw);
  for (size_t b = 0; b < kBlocks; ++b) sum0[b] = sum1[b] = hn::Zero(dw);
  for (size_t i = 0; i < kDigestBlock; i += hn::Lanes(d)) {
    const KeysOfVector<kAlone> keys0(kKeys[0].data() + i);
    const KeysOfVector<kAlone> keys1(kKeys[1].data() + i);
    for (size_t b = 0; b < kBlocks; ++b) {
      const uint8_t* at = p + b * kBlockBytes + 4 * i;
      if constexpr (kBlocks == 1) {
        ReadAhead(at + kReadAhead);
      } else {
        hwy::Prefetch(at + kTwoAhead);
      }
      const Vec32 words = LoadWords(at);
      const Vec32 x = hn::Xor(words, zero);
      const Vec32 odd = Odd(x);
      sum0[b] = hn::Add(sum0[b], keys0.Times(x, odd));
      sum1[b] = hn::Add(sum1[b], keys1.Times(x, odd));
      if constexpr (!kAlone) MixVector<T>(words, &mixed);
    }
  }
  for (size_t b = 0; b < kBlocks; ++b) {
    lanes[b][0] += SumOf(sum0[b]);
    lanes[b][1] += SumOf(sum1[b]);
  }
  if constexpr (!kAlone) *multiset += SumOf(mixed);
}

#endif  // HWY_TARGET == HWY_SCALAR

// Bytes of one block, from its byte `begin` on.
HWY_INLINE void Block(const uint8_t* p, size_t begin, size_t bytes,
                      uint64_t* sums) {
  size_t word = begin / 4;
  const auto part = [&](size_t first, size_t n) {
    const uint64_t x = PartOfWord(p, first, n);
    sums[0] += x * kKeys[0][word];
    sums[1] += x * kKeys[1][word];
    p += n;
    bytes -= n;
  };
  if (begin % 4 != 0) {
    part(begin % 4, std::min(bytes, 4 - begin % 4));
    ++word;
  }
  const size_t words = bytes / 4;
  if (words > 0) Words(p, word, words, sums);
  p += 4 * words;
  bytes -= 4 * words;
  word += words;
  if (bytes > 0) part(0, bytes);
}

HWY_INLINE void AddBlock(const uint64_t* sums, uint64_t block,
                         uint64_t* lanes) {
  lanes[0] += sums[0] * DigestBlockKey(0, block);
  lanes[1] += sums[1] * DigestBlockKey(1, block);
}

// Whole blocks from the beginning of one on; says how many bytes.
template <size_t kBlocks, class T>
HWY_INLINE size_t ManyBlocks(const uint8_t* p, uint64_t offset, size_t bytes,
                             uint64_t* lanes, uint64_t* multiset) {
  if (offset % kBlockBytes != 0) return 0;
  size_t done = 0;
  for (; bytes - done >= kBlocks * kBlockBytes; done += kBlocks * kBlockBytes) {
    uint64_t sums[kBlocks][2] = {};
    WholeBlocks<kBlocks, T>(p + done, sums, multiset);
    for (size_t b = 0; b < kBlocks; ++b) {
      AddBlock(sums[b], (offset + done) / kBlockBytes + b, lanes);
    }
  }
  return done;
}

void Positional(const uint8_t* p, uint64_t offset, size_t bytes,
                DigestPace pace, uint64_t* lanes) {
  while (bytes > 0) {
    // More blocks than two do not fit into the registers of AVX2.
    size_t n = pace == DigestPace::kOneBlock
                   ? ManyBlocks<1, void>(p, offset, bytes, lanes, nullptr)
                   : ManyBlocks<2, void>(p, offset, bytes, lanes, nullptr);
    if (n == 0) {
      const auto begin = static_cast<size_t>(offset % kBlockBytes);
      n = std::min(bytes, kBlockBytes - begin);
      uint64_t sums[2] = {};
      Block(p, begin, n, sums);
      AddBlock(sums, offset / kBlockBytes, lanes);
    }
    p += n;
    offset += n;
    bytes -= n;
  }
}

uint64_t Multiset(const uint8_t* p, size_t count, size_t itemsize) {
  switch (itemsize) {
    case 1:
      return Elements<uint8_t>(p, count);
    case 2:
      return Elements<uint16_t>(p, count);
    case 4:
      return Elements<uint32_t>(p, count);
    default:
      return Elements<uint64_t>(p, count);
  }
}

template <class T>
void BothOf(const uint8_t* p, uint64_t offset, size_t bytes, DigestSums* sums) {
  while (bytes > 0) {
    size_t n = 0;
    if constexpr (sizeof(T) <= 4) {
      n = ManyBlocks<1, T>(p, offset, bytes, sums->lane.data(),
                           &sums->multiset);
    }
    if (n == 0) {
      // One after the other: the second pass reads the first level of cache.
      n = std::min(bytes,
                   kBlockBytes - static_cast<size_t>(offset % kBlockBytes));
      Positional(p, offset, n, DigestPace::kOneBlock, sums->lane.data());
      sums->multiset += Elements<T>(p, n / sizeof(T));
    }
    p += n;
    offset += n;
    bytes -= n;
  }
}

void Both(const uint8_t* p, uint64_t offset, size_t count, size_t itemsize,
          DigestSums* sums) {
  switch (itemsize) {
    case 1:
      return BothOf<uint8_t>(p, offset, count, sums);
    case 2:
      return BothOf<uint16_t>(p, offset, 2 * count, sums);
    case 4:
      return BothOf<uint32_t>(p, offset, 4 * count, sums);
    default:
      return BothOf<uint64_t>(p, offset, 8 * count, sums);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ttrace::digest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace {
namespace digest {

HWY_EXPORT(Positional);
HWY_EXPORT(Multiset);
HWY_EXPORT(Both);

}  // namespace digest

DigestSums DigestRun(const std::byte* p, uint64_t offset, size_t count,
                     size_t itemsize) {
  using namespace digest;  // NOLINT(google-build-using-namespace)
  DigestSums sums;
  HWY_DYNAMIC_DISPATCH(Both)
  (reinterpret_cast<const uint8_t*>(p), offset, count, itemsize, &sums);
  return sums;
}

DigestPace PaceOfProcessor() {
#if HWY_ARCH_X86
  // Zen 4, which g++ 12 does not know by name: Zen 5 has VP2INTERSECT too.
  static const bool one = __builtin_cpu_is("amd") != 0 &&
                          __builtin_cpu_supports("avx512f") != 0 &&
                          __builtin_cpu_supports("avx512vp2intersect") == 0;
  if (one) return DigestPace::kOneBlock;
#endif
  return DigestPace::kTwoBlocks;
}

std::array<uint64_t, 2> PositionalRun(const std::byte* p, uint64_t offset,
                                      size_t bytes, DigestPace pace) {
  using namespace digest;  // NOLINT(google-build-using-namespace)
  std::array<uint64_t, 2> lanes = {};
  HWY_DYNAMIC_DISPATCH(Positional)
  (reinterpret_cast<const uint8_t*>(p), offset, bytes, pace, lanes.data());
  return lanes;
}

uint64_t MultisetRun(const std::byte* p, size_t count, size_t itemsize) {
  using namespace digest;  // NOLINT(google-build-using-namespace)
  return HWY_DYNAMIC_DISPATCH(Multiset)(reinterpret_cast<const uint8_t*>(p),
                                        count, itemsize);
}

}  // namespace ttrace
#endif  // HWY_ONCE
