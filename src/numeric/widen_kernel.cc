// Built with -ffp-contract=off: a product contracted with the sum behind it
// would be rounded otherwise where there is a fused multiply-add.

#include "src/numeric/widen_kernel.h"

#include <array>
#include <bit>
#include <cstring>

#include "src/numeric/fixed_vectors.h"
#include "src/numeric/widen.h"

// Highway compiles the code between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE once per instruction set by re-including this file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/numeric/widen_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <hwy/highway.h>

#include "src/numeric/e4m3fn_halves-inl.h"
#include "src/numeric/load_f32-inl.h"

#ifndef TTRACE_SRC_NUMERIC_WIDEN_KERNEL_CC_ONCE_
#define TTRACE_SRC_NUMERIC_WIDEN_KERNEL_CC_ONCE_
namespace ttrace::widen {

// Bytes of the bfloat16 of an E4M3FN that is no normal number: m * 2^-9.
constexpr std::array<uint8_t, 16> SmallE4M3FN(int byte) {
  std::array<uint8_t, 16> out = {};
  for (uint32_t m = 0; m < 8; ++m) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(m) * 0x1p-9F);
    out[m] = static_cast<uint8_t>(bits >> (16 + 8 * byte));
  }
  return out;
}
alignas(16) inline constexpr std::array<uint8_t, 16> kSmallLow = SmallE4M3FN(0);
alignas(16) inline constexpr std::array<uint8_t, 16> kSmallHigh =
    SmallE4M3FN(1);

}  // namespace ttrace::widen
#endif  // TTRACE_SRC_NUMERIC_WIDEN_KERNEL_CC_ONCE_

// The namespaces of instruction sets are shared by all kernels: names need one
// of their own.
HWY_BEFORE_NAMESPACE();
namespace ttrace::widen {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F64 = hn::ScalableTag<double>;

struct LoadF64 {
  static constexpr size_t kSize = 8;
  static HWY_INLINE hn::Vec<F64> Load(F64 d, const uint8_t* p) {
    return hn::LoadU(d, reinterpret_cast<const double*>(p));
  }
};

template <class LoadHalf>
struct ThroughF32 {
  static constexpr size_t kSize = LoadHalf::kSize;
  static HWY_INLINE hn::Vec<F64> Load(F64 d, const uint8_t* p) {
    const hn::Rebind<float, F64> df;
    return hn::PromoteTo(d, LoadHalf::Load(df, p));
  }
};

template <WidenTo kTo>
HWY_INLINE void Put(hn::Vec<F64> x, hn::Vec<F64> scale, double* out) {
  const F64 d;
  if constexpr (kTo != WidenTo::kValue) x = hn::Mul(x, scale);
  if constexpr (kTo == WidenTo::kSum) x = hn::Add(hn::LoadU(d, out), x);
  hn::StoreU(x, d, out);
}

template <class Load, WidenTo kTo>
void Run(const std::byte* in, size_t count, double scale, double* out) {
  const F64 d;
  const size_t lanes = hn::Lanes(d);
  const auto* p = reinterpret_cast<const uint8_t*>(in);
  const hn::Vec<F64> s = hn::Set(d, scale);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Put<kTo>(Load::Load(d, p + i * Load::kSize), s, out + i);
  }
  if (i == count) return;
  // Neither memory may be touched past its end.
  HWY_ALIGN uint8_t tail[HWY_MAX_BYTES] = {};
  HWY_ALIGN double to[HWY_MAX_BYTES / sizeof(double)] = {};
  std::memcpy(tail, p + i * Load::kSize, (count - i) * Load::kSize);
  std::memcpy(to, out + i, (count - i) * sizeof(double));
  Put<kTo>(Load::Load(d, tail), s, to);
  std::memcpy(out + i, to, (count - i) * sizeof(double));
}

template <class Load>
void RunTo(WidenTo to, const std::byte* in, size_t count, double scale,
           double* out) {
  switch (to) {
    case WidenTo::kValue:
      return Run<Load, WidenTo::kValue>(in, count, scale, out);
    case WidenTo::kScaled:
      return Run<Load, WidenTo::kScaled>(in, count, scale, out);
    case WidenTo::kSum:
      return Run<Load, WidenTo::kSum>(in, count, scale, out);
  }
}

void Floats(WidenTo to, DType dtype, const std::byte* in, size_t count,
            double scale, double* out) {
  using load::HWY_NAMESPACE::LoadBF16;
  using load::HWY_NAMESPACE::LoadF16;
  using load::HWY_NAMESPACE::LoadF32;
  switch (dtype) {
    case DType::kF16:
      return RunTo<ThroughF32<LoadF16>>(to, in, count, scale, out);
    case DType::kBF16:
      return RunTo<ThroughF32<LoadBF16>>(to, in, count, scale, out);
    case DType::kF32:
      return RunTo<ThroughF32<LoadF32>>(to, in, count, scale, out);
    default:
      return RunTo<LoadF64>(to, in, count, scale, out);
  }
}

#if HWY_TARGET == HWY_SCALAR

// Where there is no vector unit that Highway knows.
void E4M3FN(const std::byte* in, size_t count, uint16_t* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = F8E4M3FNAsBF16(static_cast<uint8_t>(in[i]));
  }
}
void E5M2(const std::byte* in, size_t count, uint16_t* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = F8E5M2AsF16(static_cast<uint8_t>(in[i]));
  }
}

#else

using U8 = hn::ScalableTag<uint8_t>;
using Bytes = hn::Vec<U8>;

// The lower and the upper byte of each result. A byte is s eeee mmm, its
// bfloat16 s EEEEEEEE mmm0000 with E = e + 120: an even number, so that the
// lower byte, the last bit of E among it, is the byte shifted.
HWY_INLINE void DecodeE4M3FN(Bytes x, Bytes* low, Bytes* high) {
  const U8 d;
  const Bytes size = hn::And(x, hn::Set(d, uint8_t{0x7F}));
  const auto small = hn::Eq(hn::And(x, hn::Set(d, uint8_t{0x78})), hn::Zero(d));
  const Bytes m = hn::And(x, hn::Set(d, uint8_t{0x07}));
  const Bytes small_low =
      hn::TableLookupBytes(hn::LoadDup128(d, kSmallLow.data()), m);
  const Bytes small_high =
      hn::TableLookupBytes(hn::LoadDup128(d, kSmallHigh.data()), m);
  const Bytes nan = hn::Set(d, uint8_t{0x7F});
  const Bytes normal =
      hn::Add(hn::ShiftRight<4>(size), hn::Set(d, uint8_t{60}));
  const Bytes top = hn::IfThenElse(
      small, small_high, hn::IfThenElse(hn::Eq(size, nan), nan, normal));
  *low = hn::IfThenElse(small, small_low, hn::ShiftLeft<4>(x));
  *high = hn::Or(top, hn::And(x, hn::Set(d, uint8_t{0x80})));
}

void E4M3FN(const std::byte* in, size_t count, uint16_t* out) {
  const U8 d;
  const size_t lanes = hn::Lanes(d);
  const auto* p = reinterpret_cast<const uint8_t*>(in);
  auto* to = reinterpret_cast<uint8_t*>(out);  // little-endian
  Bytes low;
  Bytes high;
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    DecodeE4M3FN(hn::LoadU(d, p + i), &low, &high);
    hn::StoreInterleaved2(low, high, d, to + 2 * i);
  }
  if (i == count) return;
  HWY_ALIGN uint8_t tail[HWY_MAX_BYTES] = {};
  HWY_ALIGN uint8_t wide[2 * HWY_MAX_BYTES];
  std::memcpy(tail, p + i, count - i);
  DecodeE4M3FN(hn::Load(d, tail), &low, &high);
  hn::StoreInterleaved2(low, high, d, wide);
  std::memcpy(to + 2 * i, wide, 2 * (count - i));
}

void E5M2(const std::byte* in, size_t count, uint16_t* out) {
  const hn::Repartition<uint16_t, U8> d16;
  const hn::Rebind<uint8_t, decltype(d16)> d8;
  const size_t lanes = hn::Lanes(d16);
  const auto* p = reinterpret_cast<const uint8_t*>(in);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto wide = hn::PromoteTo(d16, hn::LoadU(d8, p + i));
    hn::StoreU(hn::ShiftLeft<8>(wide), d16, out + i);
  }
  for (; i < count; ++i) out[i] = F8E5M2AsF16(p[i]);
}

#endif  // HWY_TARGET == HWY_SCALAR

void HalvesOf(const std::byte* in, size_t count, uint16_t* out) {
  load::HWY_NAMESPACE::E4M3FNHalves(in, count, out);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ttrace::widen
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace {
namespace widen {

HWY_EXPORT(Floats);
HWY_EXPORT(E4M3FN);
HWY_EXPORT(E5M2);
HWY_EXPORT(HalvesOf);

}  // namespace widen

void WidenFloats(WidenTo to, DType dtype, const std::byte* in, size_t count,
                 double scale, double* out) {
  using namespace widen;  // NOLINT(google-build-using-namespace)
  HWY_DYNAMIC_DISPATCH(Floats)(to, dtype, in, count, scale, out);
}

void WidenE4M3FN(const std::byte* in, size_t count, uint16_t* out) {
  using namespace widen;  // NOLINT(google-build-using-namespace)
  HWY_DYNAMIC_DISPATCH(E4M3FN)(in, count, out);
}

void WidenE5M2(const std::byte* in, size_t count, uint16_t* out) {
  using namespace widen;  // NOLINT(google-build-using-namespace)
  HWY_DYNAMIC_DISPATCH(E5M2)(in, count, out);
}

void HalvesOfE4M3FN(const std::byte* in, size_t count, uint16_t* out) {
  using namespace widen;  // NOLINT(google-build-using-namespace)
  HWY_DYNAMIC_DISPATCH(HalvesOf)(in, count, out);
}

}  // namespace ttrace
#endif  // HWY_ONCE
