// E4M3FN as float16, once per instruction set (Highway's -inl.h: included again
// for each): HalvesOfE4M3FN of widen_kernel.h, for kernels that have a block of
// them at a time.

#ifndef TTRACE_SRC_NUMERIC_E4M3FN_HALVES_INL_H_ONCE_
#define TTRACE_SRC_NUMERIC_E4M3FN_HALVES_INL_H_ONCE_

#include <cstddef>
#include <cstdint>

namespace ttrace::load {

inline constexpr uint8_t kSizeOfF8 = 0x7F;  // without the sign

// s eeee mmm as s0eeeemmm0000000: the exponent's bias grows by 8, and its size,
// with the sign, is 1/256 of what it was.
constexpr uint16_t HalfOfE4M3FN(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80U) << 8;
  const uint32_t size = bits & kSizeOfF8;
  return static_cast<uint16_t>(sign |
                               (size == kSizeOfF8 ? 0x7E00U : size << 7));
}

}  // namespace ttrace::load

#endif  // TTRACE_SRC_NUMERIC_E4M3FN_HALVES_INL_H_ONCE_

// The toggle makes the guard open once per instruction set.
#if defined(TTRACE_SRC_NUMERIC_E4M3FN_HALVES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TTRACE_SRC_NUMERIC_E4M3FN_HALVES_INL_H_
#undef TTRACE_SRC_NUMERIC_E4M3FN_HALVES_INL_H_
#else
#define TTRACE_SRC_NUMERIC_E4M3FN_HALVES_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ttrace::load {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

inline void E4M3FNHalves(const std::byte* in, size_t count, uint16_t* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = HalfOfE4M3FN(static_cast<uint8_t>(in[i]));
  }
}

#else

HWY_INLINE void E4M3FNHalves(const std::byte* in, size_t count, uint16_t* out) {
  const hn::ScalableTag<uint8_t> d;
  const hn::Repartition<int16_t, decltype(d)> d16;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  const size_t lanes = hn::Lanes(d16);
  const auto size = hn::Set(d, kSizeOfF8);
  // With the sign in two bits, of which the upper one is its place.
  const auto places = hn::Set(d16, static_cast<int16_t>(0xBFFF));
  const auto* p = reinterpret_cast<const int8_t*>(in);
  auto* to = reinterpret_cast<int16_t*>(out);
  auto largest = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto bytes = hn::LoadU(d, reinterpret_cast<const uint8_t*>(p + i));
    largest = hn::Max(largest, hn::And(bytes, size));
    for (const size_t at : {i, i + lanes}) {
      const auto wide = hn::PromoteTo(d16, hn::LoadU(d8, p + at));
      hn::StoreU(hn::And(hn::ShiftLeft<7>(wide), places), d16, to + at);
    }
  }
  // Where there is NaN, which would pass for 480 / 256, all again.
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Eq(largest, size)))) i = 0;
  for (; i < count; ++i) out[i] = HalfOfE4M3FN(static_cast<uint8_t>(in[i]));
}

#endif  // HWY_TARGET == HWY_SCALAR

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ttrace::load
HWY_AFTER_NAMESPACE();

#endif  // TTRACE_SRC_NUMERIC_E4M3FN_HALVES_INL_H_
