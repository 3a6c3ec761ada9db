// Built with -ffp-contract=off: see AddRows.

#include "src/numeric/sketch_kernel.h"

#include <algorithm>
#include <cstring>

#include "src/numeric/digest_kernel.h"
#include "src/numeric/fixed_vectors.h"
#include "src/numeric/read_ahead.h"

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

// What the hashes of 16 lines say. Vectors compute it for all of them, because
// line by line this arithmetic would take longer than the elements do.
struct Lines {
  HWY_ALIGN uint32_t hash[kSketchLine];
  // Of kPermutations, in elements.
  HWY_ALIGN uint32_t permutation[kSketchLine];
  // Of the bucket where the first vector of a line goes; vector r, an
  // exclusive or of the index with r * kLanes away.
  HWY_ALIGN uint32_t bucket[kSketchLine];
};

// Those from `line` on, which is a multiple of 16.
HWY_INLINE void HashLines(uint32_t line, SketchKeys keys, uint32_t row_mask,
                          Lines* out) {
  const U32 d;
  const auto in_vector = hn::Set(d, static_cast<uint32_t>(kLanes - 1));
  const auto rotations = hn::Set(d, static_cast<uint32_t>(kSketchLine - 1));
  for (size_t i = 0; i < kSketchLine; i += kLanes) {
    // Iota of a variable is made of scalars, through memory.
    auto x = hn::Add(hn::Set(d, line), hn::Iota(d, static_cast<uint32_t>(i)));
    x = hn::Xor(x, hn::Set(d, keys.first));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)),
                hn::Set(d, uint32_t{0x21F0AAAD}));
    x = hn::Add(x, hn::Set(d, keys.second));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)),
                hn::Set(d, uint32_t{0x735A2D97}));
    x = hn::Xor(x, hn::ShiftRight<15>(x));
    const auto rotation = hn::And(hn::ShiftRight<16>(x), rotations);
    const auto row = hn::And(hn::ShiftRight<20>(x), hn::Set(d, row_mask));
    hn::Store(x, d, out->hash + i);
    hn::Store(hn::ShiftLeft<4>(hn::And(rotation, in_vector)), d,
              out->permutation + i);
    hn::Store(hn::Or(hn::ShiftLeft<4>(row), hn::AndNot(in_vector, rotation)), d,
              out->bucket + i);
  }
}

template <class Load>
HWY_INLINE void Line(const uint8_t* p, const Lines& lines, size_t i,
                     float* buckets) {
  const F32 d;
  const U32 du;
  const auto hash = hn::Set(du, lines.hash[i]);
  const size_t bucket = lines.bucket[i];
  for (size_t r = 0; r < kSketchLine; r += kLanes) {
    // Bit l of the hash, where the sign of lane l is.
    const auto to_sign = hn::Sub(hn::Set(du, static_cast<uint32_t>(31 - r)),
                                 hn::Iota(du, uint32_t{0}));
    const auto sign =
        hn::And(hn::Shl(hash, to_sign), hn::Set(du, uint32_t{0x80000000}));
    auto x = Load::Load(d, p + r * Load::kSize);
    x = hn::BitCast(d, hn::Xor(hn::BitCast(du, x), sign));
    if constexpr (kLanes > 1) {
      x = hn::TableLookupLanes(
          x, hn::SetTableIndices(
                 d, &kPermutations.lane[0][0] + lines.permutation[i]));
    }
    float* at = buckets + (bucket ^ r);
    hn::Store(hn::Add(hn::Load(d, at), x), d, at);
  }
}

template <class Load>
void Run(const uint8_t* p, uint64_t logical, size_t count, uint64_t seed,
         size_t row_mask, SketchRow* to) {
  constexpr uint64_t kGroup = kSketchLine * kSketchLine;  // elements
  float* buckets = to->bucket;
  const uint64_t end = logical + count;
  uint64_t high = logical / kSketchLine >> 32;
  SketchKeys keys = KeysOfLines(seed, static_cast<uint32_t>(high));
  const auto hash = [&](uint64_t index, Lines* lines) HWY_ATTR {
    const uint64_t line = index / kGroup * kSketchLine;
    if (HWY_UNLIKELY(line >> 32 != high)) {
      high = line >> 32;
      keys = KeysOfLines(seed, static_cast<uint32_t>(high));
    }
    HashLines(static_cast<uint32_t>(line), keys,
              static_cast<uint32_t>(row_mask), lines);
  };
  // Hashes are computed a group ahead: lines of a group could not start before
  // its hashes are there, and the processor sees no further than one group.
  Lines groups[2];
  if (count > 0) hash(logical, &groups[0]);
  for (size_t g = 0; logical < end; g ^= 1) {
    const Lines& lines = groups[g];
    const uint64_t group_end = std::min(end, (logical / kGroup + 1) * kGroup);
    if (group_end < end) hash(group_end, &groups[g ^ 1]);
    if (HWY_LIKELY(group_end - logical == kGroup)) {
      for (size_t i = 0; i < kSketchLine; ++i) {
        ReadAhead(p + kReadAhead);
        Line<Load>(p, lines, i, buckets);
        p += kSketchLine * Load::kSize;
      }
      logical = group_end;
    }
    while (logical < group_end) {
      const auto i = static_cast<size_t>(logical / kSketchLine % kSketchLine);
      const auto first = static_cast<size_t>(logical % kSketchLine);
      const auto n = static_cast<size_t>(
          std::min<uint64_t>(kSketchLine - first, group_end - logical));
      if (HWY_LIKELY(n == kSketchLine)) {
        Line<Load>(p, lines, i, buckets);
      } else {
        // Zeros change no bucket.
        HWY_ALIGN uint8_t part[kSketchLine * 4] = {};
        std::memcpy(part + first * Load::kSize, p, n * Load::kSize);
        Line<Load>(part, lines, i, buckets);
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

// A product is rounded before it is added on every instruction set.
void Add(SketchRow* rows, size_t count, double scale, double* sums) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto factor = hn::Set(d, scale);
  for (size_t r = 0; r < count; ++r) {
    for (size_t l = 0; l < kSketchLine; l += hn::Lanes(d)) {
      float* bucket = rows[r].bucket + l;
      double* sum = sums + kSketchLine * r + l;
      const auto x = hn::PromoteTo(d, hn::Load(df, bucket));
      hn::StoreU(hn::Add(hn::LoadU(d, sum), hn::Mul(factor, x)), d, sum);
      hn::Store(hn::Zero(df), df, bucket);
    }
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
HWY_EXPORT(Add);

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

void AddRows(SketchRow* rows, size_t count, double scale, double* sums) {
  using namespace sketch;  // NOLINT(google-build-using-namespace)
  HWY_DYNAMIC_DISPATCH(Add)(rows, count, scale, sums);
}

}  // namespace ttrace
#endif  // HWY_ONCE
