// Built with -ffp-contract=off: see the header.

#include "src/numeric/random_kernel.h"

#include "src/numeric/fixed_vectors.h"
#include "src/numeric/noise_kernel.h"

// Highway compiles the code between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE once per instruction set by re-including this file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/numeric/random_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <hwy/highway.h>

// The namespaces of instruction sets are shared by all kernels: names need one
// of their own.
HWY_BEFORE_NAMESPACE();
namespace ttrace::random_values {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, kNoiseCounters>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using Floats = hn::Vec<F32>;
using Words = hn::Vec<U32>;

#if HWY_TARGET == HWY_SCALAR
inline constexpr size_t kLanes = 1;
#else
inline constexpr size_t kLanes =
    HWY_MIN(HWY_MAX_BYTES / sizeof(float), kNoiseCounters);
#endif
// Each operation of a logarithm waits for the one before it. With those of
// other vectors written in between, a processor has enough to do without
// seeing far ahead.
inline constexpr size_t kTogether =
    HWY_MIN(size_t{4}, 2 * kNoiseCounters / kLanes);

// Horner's scheme, highest coefficient first.
template <class... More>
HWY_INLINE Floats Polynomial(Floats x, float first, More... more) {
  const F32 d;
  Floats y = hn::Set(d, first);
  ((y = hn::Add(hn::Mul(y, x), hn::Set(d, more))), ...);
  return y;
}
template <class... More>
HWY_INLINE void Polynomials(const Floats* x, Floats* y, float first,
                            More... more) {
  const F32 d;
  const auto step = [&](float coefficient) HWY_ATTR {
    for (size_t i = 0; i < kTogether; ++i) {
      y[i] = hn::Add(hn::Mul(y[i], x[i]), hn::Set(d, coefficient));
    }
  };
  for (size_t i = 0; i < kTogether; ++i) y[i] = hn::Set(d, first);
  (step(more), ...);
}

// sqrt(-2 ln(u / 2^24)) of u = a / 2^8 + 1, from 1 to 2^24. With u =
// m 2^e, m in [sqrt(1/2), sqrt(2)), and f = m - 1.
HWY_INLINE void Radii(const Words* a, Floats* out) {
  const F32 d;
  const U32 du;
  const I32 di;
  constexpr uint32_t kSqrtHalf = 0x3F3504F3;
  Floats f[kTogether];
  Floats e[kTogether];
  Floats y[kTogether];
  for (size_t i = 0; i < kTogether; ++i) {
    const Words above_zero =
        hn::Add(hn::ShiftRight<8>(a[i]), hn::Set(du, uint32_t{1}));
    const Floats u = hn::ConvertTo(d, hn::BitCast(di, above_zero));
    const Words bits = hn::Add(hn::BitCast(du, u),
                               hn::Set(du, uint32_t{0x3F800000} - kSqrtHalf));
    e[i] = hn::ConvertTo(d, hn::Sub(hn::BitCast(di, hn::ShiftRight<23>(bits)),
                                    hn::Set(di, 127 + 24)));
    const Floats m =
        hn::BitCast(d, hn::Add(hn::And(bits, hn::Set(du, uint32_t{0x007FFFFF})),
                               hn::Set(du, kSqrtHalf)));
    f[i] = hn::Sub(m, hn::Set(d, 1.0F));
  }
  Polynomials(f, y, 7.0376836292E-2F, -1.1514610310E-1F, 1.1676998740E-1F,
              -1.2420140846E-1F, 1.4249322787E-1F, -1.6668057665E-1F,
              2.0000714765E-1F, -2.4999993993E-1F, 3.3333331174E-1F);
  for (size_t i = 0; i < kTogether; ++i) {
    const Floats f2 = hn::Mul(f[i], f[i]);
    const Floats ln =
        hn::Add(hn::Sub(hn::Mul(hn::Mul(y[i], f[i]), f2),
                        hn::Mul(f2, hn::Set(d, 0.5F))),
                hn::Add(f[i], hn::Mul(e[i], hn::Set(d, 0.693147180559945F))));
    out[i] = hn::Sqrt(hn::Max(hn::Mul(ln, hn::Set(d, -2.0F)), hn::Zero(d)));
  }
}

// r cos and r sin of an angle from `b`: its two upper bits are the quadrant,
// the next 24 the place in it, from -pi/4 to pi/4.
HWY_INLINE void NormalPair(Floats r, Words b, Floats* cosine, Floats* sine) {
  const F32 d;
  const U32 du;
  const I32 di;
  const Words place =
      hn::And(hn::ShiftRight<6>(b), hn::Set(du, uint32_t{0xFFFFFF}));
  // pi / 2 / 2^24 a step.
  const Floats t = hn::Mul(
      hn::ConvertTo(d, hn::Sub(hn::BitCast(di, place), hn::Set(di, 1 << 23))),
      hn::Set(d, 9.36267570e-8F));
  const Floats t2 = hn::Mul(t, t);
  Floats s =
      Polynomial(t2, -1.9515295891E-4F, 8.3321608736E-3F, -1.6666654611E-1F);
  s = hn::Add(hn::Mul(hn::Mul(s, t2), t), t);
  Floats c = Polynomial(t2, 2.443315711809948E-5F, -1.388731625493765E-3F,
                        4.166664568298827E-2F);
  c = hn::Add(
      hn::Sub(hn::Mul(hn::Mul(c, t2), t2), hn::Mul(t2, hn::Set(d, 0.5F))),
      hn::Set(d, 1.0F));

  const Words quadrant = hn::ShiftRight<30>(b);
  const Words one = hn::Set(du, uint32_t{1});
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(quadrant, one), one));
  // Cosine is negative in quadrants 1 and 2, sine in 2 and 3.
  const Words cosine_sign =
      hn::ShiftLeft<31>(hn::ShiftRight<1>(hn::Add(quadrant, one)));
  const Words sine_sign = hn::And(b, hn::Set(du, uint32_t{0x80000000}));
  const auto negate = [&](Floats x, Words sign) HWY_ATTR {
    return hn::BitCast(d, hn::Xor(hn::BitCast(du, x), sign));
  };
  *cosine = hn::Mul(r, negate(hn::IfThenElse(odd, s, c), cosine_sign));
  *sine = hn::Mul(r, negate(hn::IfThenElse(odd, c, s), sine_sign));
}

void Normal(const uint32_t* words, size_t tiles, float scale, float* out) {
  const F32 d;
  const U32 du;
  const Floats factor = hn::Set(d, scale);
  // Two counters' words make two rows of a tile. Where vector i of the first
  // ones lies:
  const auto place = [](size_t i) {
    return i * kLanes / kNoiseCounters * 2 * kNoiseCounters +
           i * kLanes % kNoiseCounters;
  };
  const size_t vectors = tiles * 2 * kNoiseCounters / kLanes;
  for (size_t i = 0; i < vectors; i += kTogether) {
    Words a[kTogether];
    Floats radius[kTogether];
    for (size_t k = 0; k < kTogether; ++k) {
      a[k] = hn::LoadU(du, words + place(i + k));
    }
    Radii(a, radius);
    for (size_t k = 0; k < kTogether; ++k) {
      const size_t at = place(i + k);
      Floats cosine;
      Floats sine;
      NormalPair(radius[k], hn::LoadU(du, words + at + kNoiseCounters), &cosine,
                 &sine);
      hn::StoreU(hn::Mul(cosine, factor), d, out + at);
      hn::StoreU(hn::Mul(sine, factor), d, out + at + kNoiseCounters);
    }
  }
}

void Uniform(const uint32_t* words, size_t tiles, float scale, float* out) {
  const F32 d;
  const U32 du;
  const I32 di;
  const Floats factor = hn::Set(d, scale);
  for (size_t i = 0; i < tiles * kNoiseTile; i += hn::Lanes(d)) {
    const auto word = hn::BitCast(di, hn::LoadU(du, words + i));
    const Floats middle =
        hn::Add(hn::ConvertTo(d, hn::ShiftRight<8>(word)), hn::Set(d, 0.5F));
    const Floats unit = hn::Mul(middle, hn::Set(d, 0x1p-23F));
    hn::StoreU(hn::Mul(unit, factor), d, out + i);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ttrace::random_values
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace {
namespace random_values {

HWY_EXPORT(Normal);
HWY_EXPORT(Uniform);

}  // namespace random_values

void NormalOfWords(const uint32_t* words, size_t tiles, float scale,
                   float* out) {
  using namespace random_values;  // NOLINT(google-build-using-namespace)
  HWY_DYNAMIC_DISPATCH(Normal)(words, tiles, scale, out);
}

void UniformOfWords(const uint32_t* words, size_t tiles, float scale,
                    float* out) {
  using namespace random_values;  // NOLINT(google-build-using-namespace)
  HWY_DYNAMIC_DISPATCH(Uniform)(words, tiles, scale, out);
}

}  // namespace ttrace
#endif  // HWY_ONCE
