#include "src/numeric/sketch_kernel.h"

#include <algorithm>
#include <cstring>

#include "src/numeric/digest_kernel.h"
#include "src/numeric/fixed_vectors.h"

// Highway compiles the code between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE once per instruction set by re-including this file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/numeric/sketch_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <hwy/highway.h>

#include "src/numeric/load_f32-inl.h"

#ifndef TTRACE_SRC_NUMERIC_SKETCH_KERNEL_CC_ONCE_
#define TTRACE_SRC_NUMERIC_SKETCH_KERNEL_CC_ONCE_
namespace ttrace::sketch {

// Lane j of what a vector becomes is lane j ^ r of it.
struct Permutations {
  alignas(64) int32_t lane[kSketchLine][kSketchLine];
};
constexpr Permutations MakePermutations() {
  Permutations out = {};
  for (size_t r = 0; r < kSketchLine; ++r) {
    for (size_t j = 0; j < kSketchLine; ++j) {
      out.lane[r][j] = static_cast<int32_t>(j ^ r);
    }
  }
  return out;
}
inline constexpr Permutations kPermutations = MakePermutations();

}  // namespace ttrace::sketch
#endif  // TTRACE_SRC_NUMERIC_SKETCH_KERNEL_CC_ONCE_

// The namespaces of instruction sets are shared by all kernels: names need one
// of their own.
HWY_BEFORE_NAMESPACE();
namespace ttrace::sketch {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using load::HWY_NAMESPACE::LoadBF16;
using load::HWY_NAMESPACE::LoadF16;
using load::HWY_NAMESPACE::LoadF32;

using F32 = hn::CappedTag<float, kSketchLine>;
using U32 = hn::RebindToUnsigned<F32>;

#if HWY_TARGET == HWY_SCALAR
inline constexpr size_t kLanes = 1;
#else
static_assert(!HWY_HAVE_SCALABLE, "fixed_vectors.h disables them");
inline constexpr size_t kLanes =
    HWY_MIN(HWY_MAX_BYTES / sizeof(float), kSketchLine);
#endif

// Those of 16 lines from `line` on, which is a multiple of 16.
HWY_INLINE void HashLines(uint32_t line, SketchKeys keys, uint32_t* hashes) {
  const U32 d;
  for (size_t i = 0; i < kSketchLine; i += kLanes) {
    auto x = hn::Iota(d, line + static_cast<uint32_t>(i));
    x = hn::Xor(x, hn::Set(d, keys.first));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)),
                hn::Set(d, uint32_t{0x21F0AAAD}));
    x = hn::Add(x, hn::Set(d, keys.second));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)),
                hn::Set(d, uint32_t{0x735A2D97}));
    hn::Store(hn::Xor(x, hn::ShiftRight<15>(x)), d, hashes + i);
  }
}

template <class Load>
HWY_INLINE void Line(const uint8_t* p, uint32_t hash, size_t row_mask,
                     SketchRow* to) {
  const F32 d;
  const U32 du;
  const size_t rotation = (hash >> 16) & 15;
  float* row = to[(hash >> 20) & row_mask].bucket;
  const auto sign_bit = hn::Set(du, uint32_t{0x80000000});
  for (size_t r = 0; r < kSketchLine; r += kLanes) {
    const auto bit = hn::Shl(hn::Set(du, uint32_t{1}),
                             hn::Iota(du, static_cast<uint32_t>(r)));
    const auto negative = hn::TestBit(hn::Set(du, hash), bit);
    const auto sign = hn::IfThenElseZero(negative, sign_bit);
    auto x = Load::Load(d, p + r * Load::kSize);
    x = hn::BitCast(d, hn::Xor(hn::BitCast(du, x), sign));
    if constexpr (kLanes > 1) {
      x = hn::TableLookupLanes(
          x,
          hn::SetTableIndices(d, kPermutations.lane[rotation & (kLanes - 1)]));
    }
    float* at = row + (r ^ (rotation & ~(kLanes - 1)));
    hn::Store(hn::Add(hn::Load(d, at), x), d, at);
  }
}

template <class Load>
void Run(const uint8_t* p, uint64_t logical, size_t count, uint64_t seed,
         size_t row_mask, SketchRow* to) {
  constexpr uint64_t kGroup = kSketchLine * kSketchLine;  // elements
  HWY_ALIGN uint32_t hashes[kSketchLine];
  const uint64_t end = logical + count;
  while (logical < end) {
    const uint64_t line = logical / kGroup * kSketchLine;
    HashLines(static_cast<uint32_t>(line),
              KeysOfLines(seed, static_cast<uint32_t>(line >> 32)), hashes);
    const uint64_t group_end =
        std::min(end, (line + kSketchLine) * kSketchLine);
    if (HWY_LIKELY(logical % kGroup == 0 && group_end - logical == kGroup)) {
      for (const uint32_t hash : hashes) {
        Line<Load>(p, hash, row_mask, to);
        p += kSketchLine * Load::kSize;
      }
      logical = group_end;
    }
    while (logical < group_end) {
      const uint32_t hash = hashes[logical / kSketchLine % kSketchLine];
      const auto first = static_cast<size_t>(logical % kSketchLine);
      const auto n = static_cast<size_t>(
          std::min<uint64_t>(kSketchLine - first, group_end - logical));
      if (HWY_LIKELY(n == kSketchLine)) {
        Line<Load>(p, hash, row_mask, to);
      } else {
        // Zeros change no bucket.
        HWY_ALIGN uint8_t part[kSketchLine * 4] = {};
        std::memcpy(part + first * Load::kSize, p, n * Load::kSize);
        Line<Load>(part, hash, row_mask, to);
      }
      logical += n;
      p += n * Load::kSize;
    }
  }
}

void AnyRun(DType dtype, const uint8_t* p, uint64_t logical, size_t count,
            uint64_t seed, size_t row_mask, SketchRow* to) {
  switch (dtype) {
    case DType::kF16:
      return Run<LoadF16>(p, logical, count, seed, row_mask, to);
    case DType::kBF16:
      return Run<LoadBF16>(p, logical, count, seed, row_mask, to);
    default:
      return Run<LoadF32>(p, logical, count, seed, row_mask, to);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ttrace::sketch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace {
namespace sketch {

HWY_EXPORT(AnyRun);

}  // namespace sketch

SketchKeys KeysOfLines(uint64_t seed, uint32_t high) {
  const uint64_t keys = SplitMix64(seed ^ high);
  return {static_cast<uint32_t>(keys), static_cast<uint32_t>(keys >> 32)};
}

void SketchRun(DType dtype, const std::byte* p, uint64_t logical, size_t count,
               uint64_t seed, size_t rows, SketchRow* to) {
  using namespace sketch;  // NOLINT(google-build-using-namespace)
  HWY_DYNAMIC_DISPATCH(AnyRun)
  (dtype, reinterpret_cast<const uint8_t*>(p), logical, count, seed, rows - 1,
   to);
}

}  // namespace ttrace
#endif  // HWY_ONCE
