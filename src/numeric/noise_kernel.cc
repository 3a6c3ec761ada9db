#include "src/numeric/noise_kernel.h"

#include <cstring>
#include <type_traits>

#include "src/numeric/fixed_vectors.h"
#include "src/numeric/philox.h"

// Highway compiles the code between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE once per instruction set by re-including this file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/numeric/noise_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <hwy/highway.h>

// The namespaces of instruction sets are shared by all kernels: names need one
// of their own.
// Keys are passed by value: through a reference they would be read again after
// each store of bytes.
HWY_BEFORE_NAMESPACE();
namespace ttrace::noise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

// Where there is no vector unit that Highway knows.
void Fill(NoiseKey key, uint64_t tile, size_t tiles, uint32_t* words) {
  for (; tiles > 0; --tiles, ++tile, words += kNoiseTile) {
    for (uint64_t l = 0; l < kNoiseCounters; ++l) {
      const PhiloxCounter out = NoiseWordsOf(key, kNoiseCounters * tile + l);
      for (size_t w = 0; w < 4; ++w) words[w * kNoiseCounters + l] = out[w];
    }
  }
}

template <int kP>
void Perturb(NoiseKey key, uint64_t tile, size_t tiles, const std::byte* from,
             std::byte* to) {
  using Bits = std::conditional_t<kP == 23, uint32_t, uint16_t>;
  for (size_t t = 0; t < tiles; ++t, ++tile) {
    uint32_t words[kNoiseTile];
    Fill(key, tile, 1, words);
    for (size_t i = 0; i < kNoiseTile; ++i) {
      const size_t at = (t * kNoiseTile + i) * sizeof(Bits);
      Bits bits;
      std::memcpy(&bits, from + at, sizeof(bits));
      bits = static_cast<Bits>(PerturbBits(bits, words[i], kP));
      std::memcpy(to + at, &bits, sizeof(bits));
    }
  }
}

#else

using U32 = hn::CappedTag<uint32_t, kNoiseCounters>;
using U64 = hn::Repartition<uint64_t, U32>;
using U16 = hn::Rebind<uint16_t, U32>;
using I32 = hn::RebindToSigned<U32>;
using Words = hn::Vec<U32>;
using Wide = hn::Vec<U64>;

inline constexpr size_t kLanes =
    HWY_MIN(HWY_MAX_BYTES / sizeof(uint32_t), kNoiseCounters);

// The four words of every second counter, each in the lower half of 64 bits.
// The upper halves hold rests of products, which no multiplication reads.
struct Counters {
  Wide x0, x1, x2, x3;
};

HWY_INLINE Counters Begin(Wide counter, uint64_t name) {
  const U64 d;
  return {counter, hn::ShiftRight<32>(counter), hn::Set(d, name),
          hn::Set(d, name >> 32)};
}

HWY_INLINE Wide Product(Wide x, uint32_t multiplier) {
  const U32 d;
  return hn::MulEven(hn::BitCast(d, x), hn::Set(d, multiplier));
}

HWY_INLINE void Round(uint32_t key0, uint32_t key1, Counters* c) {
  const U64 d;
  const Wide p0 = Product(c->x0, kPhiloxMultiplier0);
  const Wide p1 = Product(c->x2, kPhiloxMultiplier1);
  c->x0 = hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(c->x1, hn::Set(d, key0)));
  c->x2 = hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(c->x3, hn::Set(d, key1)));
  c->x1 = p1;
  c->x3 = p0;
}

HWY_INLINE Words Join(Wide even, Wide odd) {
  const U32 d;
  return hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)),
                     hn::BitCast(d, even));
}

// Words w = 0 .. 3 of kLanes counters from `first` on: element l + 16 w of a
// tile for its counter l.
HWY_INLINE void Generate(NoiseKey key, uint64_t first, Words* out) {
  const U64 d;
  const Wide at = hn::ShiftLeft<1>(hn::Iota(d, uint64_t{0}));
  Counters even = Begin(hn::Add(hn::Set(d, first), at), key.name);
  Counters odd = Begin(hn::Add(hn::Set(d, first + 1), at), key.name);
  auto key0 = static_cast<uint32_t>(key.seed);
  auto key1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    Round(key0, key1, &even);
    Round(key0, key1, &odd);
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  out[0] = Join(even.x0, odd.x0);
  out[1] = Join(even.x1, odd.x1);
  out[2] = Join(even.x2, odd.x2);
  out[3] = Join(even.x3, odd.x3);
}

// As PerturbBits, which says why.
template <int kP>
HWY_INLINE Words Step(Words bits, Words word) {
  const U32 d;
  const I32 di;
  constexpr uint32_t kSign = kP == 23 ? uint32_t{1} << 31 : uint32_t{1} << 15;
  constexpr uint32_t kInfinity = (kSign - 1) & ~((uint32_t{1} << kP) - 1);
  const Words size = hn::And(bits, hn::Set(d, kSign - 1));
  const Words down =
      hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(di, word)));
  const Words n = hn::Or(
      hn::ShiftLeft<1>(hn::And(hn::Xor(word, down), hn::Set(d, 0xFFFFFF00U))),
      hn::Set(d, 256U));
  const Words top = hn::Set(d, 0x80000000U);
  Words m = hn::Or(hn::ShiftLeft<31 - kP>(size), top);
  // Sizes are below 2^31, where signed and unsigned numbers compare alike.
  const auto as_signed = [&](Words v) { return hn::BitCast(di, v); };
  const auto low = hn::Lt(as_signed(size), hn::Set(di, int32_t{3} << (kP - 1)));
  m = hn::IfThenElse(hn::RebindMask(d, low), hn::Set(d, 0xC0000000U), m);
  const Wide even = hn::MulEven(m, n);
  const Wide odd =
      hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(U64(), m))),
                  hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(U64(), n))));
  const Words product = hn::OddEven(hn::BitCast(d, odd),
                                    hn::BitCast(d, hn::ShiftRight<32>(even)));
  const Words dense = hn::And(down, hn::VecFromMask(d, hn::Eq(m, top)));
  Words step = hn::ShiftRight<31>(
      hn::Or(product, hn::And(dense, hn::ShiftLeft<1>(product))));
  // One more or one less.
  step = hn::Sub(hn::Xor(step, down), down);
  // 0 < size, and neither of them Inf or NaN.
  const auto infinity = hn::Set(di, static_cast<int32_t>(kInfinity));
  const auto finite = hn::And(hn::Lt(as_signed(size), infinity),
                              hn::Lt(as_signed(hn::Add(size, step)), infinity));
  const auto moves = hn::And(finite, hn::Gt(as_signed(size), hn::Zero(di)));
  return hn::Add(bits, hn::IfThenElseZero(hn::RebindMask(d, moves), step));
}

// Of any alignment.
template <class D>
HWY_INLINE hn::Vec<D> Load(D d, const std::byte* from) {
  const hn::Repartition<uint8_t, D> bytes;
  return hn::BitCast(d,
                     hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(from)));
}

template <class D>
HWY_INLINE void Store(hn::Vec<D> v, D /*d*/, std::byte* to) {
  const hn::Repartition<uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, reinterpret_cast<uint8_t*>(to));
}

template <int kP>
HWY_INLINE void StepAt(Words word, const std::byte* from, std::byte* to) {
  const U32 d;
  const U16 half;
  if constexpr (kP == 23) {
    Store(Step<kP>(Load(d, from), word), d, to);
  } else {
    const Words bits = Step<kP>(hn::PromoteTo(d, Load(half, from)), word);
    Store(hn::DemoteTo(half, hn::BitCast(I32(), bits)), half, to);
  }
}

template <int kP>
void Perturb(NoiseKey key, uint64_t tile, size_t tiles, const std::byte* from,
             std::byte* to) {
  constexpr size_t kSize = kP == 23 ? 4 : 2;
  for (size_t t = 0; t < tiles; ++t, ++tile) {
    for (size_t l = 0; l < kNoiseCounters; l += kLanes) {
      Words words[4];
      Generate(key, kNoiseCounters * tile + l, words);
      for (size_t w = 0; w < 4; ++w) {
        const size_t at = (t * kNoiseTile + w * kNoiseCounters + l) * kSize;
        StepAt<kP>(words[w], from + at, to + at);
      }
    }
  }
}

void Fill(NoiseKey key, uint64_t tile, size_t tiles, uint32_t* words) {
  const U32 d;
  for (; tiles > 0; --tiles, ++tile, words += kNoiseTile) {
    for (size_t l = 0; l < kNoiseCounters; l += kLanes) {
      Words out[4];
      Generate(key, kNoiseCounters * tile + l, out);
      for (size_t w = 0; w < 4; ++w) {
        hn::StoreU(out[w], d, words + w * kNoiseCounters + l);
      }
    }
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

void PerturbAll(NoiseKey key, uint64_t tile, size_t tiles, int p,
                const std::byte* from, std::byte* to) {
  switch (p) {
    case 7:
      return Perturb<7>(key, tile, tiles, from, to);
    case 10:
      return Perturb<10>(key, tile, tiles, from, to);
    default:
      return Perturb<23>(key, tile, tiles, from, to);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ttrace::noise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace {
namespace noise {

HWY_EXPORT(PerturbAll);
HWY_EXPORT(Fill);

}  // namespace noise

void NoiseWords(const NoiseKey& key, uint64_t first_tile, size_t tiles,
                uint32_t* words) {
  using namespace noise;  // NOLINT(google-build-using-namespace)
  HWY_DYNAMIC_DISPATCH(Fill)(key, first_tile, tiles, words);
}

void PerturbTiles(const NoiseKey& key, uint64_t first_tile, size_t tiles, int p,
                  const std::byte* from, std::byte* to) {
  using namespace noise;  // NOLINT(google-build-using-namespace)
  HWY_DYNAMIC_DISPATCH(PerturbAll)(key, first_tile, tiles, p, from, to);
}

}  // namespace ttrace
#endif  // HWY_ONCE
