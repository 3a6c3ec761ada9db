// Lanes of 16- and 32-bit floats as fp32, once per instruction set (Highway's
// -inl.h: included again for each). All conversions are exact.
//
// `D` is a tag of float; `p` needs no alignment.

// The toggle makes the guard open once per instruction set.
#if defined(TTRACE_SRC_NUMERIC_LOAD_F32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTRACE_SRC_NUMERIC_LOAD_F32_INL_H_
#undef TTRACE_SRC_NUMERIC_LOAD_F32_INL_H_
#else
#define TTRACE_SRC_NUMERIC_LOAD_F32_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace ttrace::load {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct LoadF32 {
  static constexpr size_t kSize = 4;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D df, const uint8_t* p) {
    return hn::LoadU(df, reinterpret_cast<const float*>(p));
  }
};

struct LoadBF16 {
  static constexpr size_t kSize = 2;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D df, const uint8_t* p) {
    const hn::Rebind<uint32_t, D> du;
    const hn::Rebind<uint16_t, D> d16;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
    return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
  }
};

// Whether one instruction widens vectors of float16.
#undef TTRACE_HAS_F16C
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || \
    HWY_TARGET == HWY_AVX3_DL
#define TTRACE_HAS_F16C 1
#else
#define TTRACE_HAS_F16C 0
#endif

struct LoadF16 {
  static constexpr size_t kSize = 2;
  static constexpr bool kIsOneInstruction = TTRACE_HAS_F16C != 0;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D df, const uint8_t* p) {
#if TTRACE_HAS_F16C
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(
        df, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#else
    // Highway's own conversion without F16C takes Inf and NaN for numbers.
    const hn::Rebind<uint32_t, D> du;
    const hn::RebindToSigned<decltype(du)> di;
    const hn::Rebind<uint16_t, D> d16;
    const auto bits =
        hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
    const auto sign =
        hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, uint32_t{0x8000})));
    const auto rest =
        hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, uint32_t{0x7FFF})));
    // The exponent's bias grows by 112; for denormals the multiplication
    // normalises.
    const auto finite =
        hn::BitCast(du, hn::Mul(hn::BitCast(df, rest), hn::Set(df, 0x1p112F)));
    const auto inf = hn::Set(du, uint32_t{0x7F800000});
    const auto is_finite =
        hn::Lt(hn::BitCast(di, rest), hn::Set(di, 0x0F800000));
    const auto magnitude = hn::IfThenElse(hn::RebindMask(du, is_finite), finite,
                                          hn::Or(rest, inf));
    return hn::BitCast(df, hn::Or(sign, magnitude));
#endif
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ttrace::load
HWY_AFTER_NAMESPACE();

#endif  // TTRACE_SRC_NUMERIC_LOAD_F32_INL_H_
