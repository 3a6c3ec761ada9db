#include "src/compare/compare_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "src/compare/compare_exact.h"
#include "src/numeric/fixed_vectors.h"
#include "src/numeric/read_ahead.h"
#include "src/numeric/widen.h"
#include "src/numeric/widen_kernel.h"

// Highway compiles the code between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE once per instruction set by re-including this file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/compare/compare_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <hwy/highway.h>

#include "src/numeric/e4m3fn_halves-inl.h"
#include "src/numeric/load_f32-inl.h"

#ifndef TTRACE_SRC_COMPARE_COMPARE_KERNEL_CC_ONCE_
#define TTRACE_SRC_COMPARE_COMPARE_KERNEL_CC_ONCE_
namespace ttrace {

// The logical line: lane j of 16 adds up elements j, j + 16, ... of a block on
// every instruction set, so that all of them add in the same order.
inline constexpr size_t kLine = 16;

inline bool IsF8(DType dtype) { return WiderF8(dtype) != dtype; }

}  // namespace ttrace
#endif  // TTRACE_SRC_COMPARE_COMPARE_KERNEL_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace ttrace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32Tag = hn::ScalableTag<float>;
using U32Tag = hn::ScalableTag<uint32_t>;
using F32Vec = hn::Vec<F32Tag>;

#if HWY_TARGET == HWY_SCALAR
inline constexpr size_t kLanes = 1;
#else
static_assert(!HWY_HAVE_SCALABLE, "fixed_vectors.h disables them");
inline constexpr size_t kLanes = HWY_MAX_BYTES / sizeof(float);
#endif
inline constexpr size_t kRegisters = kLine / kLanes;  // that make a line

// How kLanes elements become fp32.
using load::HWY_NAMESPACE::LoadBF16;
using load::HWY_NAMESPACE::LoadF16;
using load::HWY_NAMESPACE::LoadF32;

// Adds the 16 lanes of a line to one double, by the same tree everywhere:
// q[j] = lane[j] + lane[j + 8], and so on by halves.
HWY_INLINE double SumOfLine(const F32Vec* sums) {
  HWY_ALIGN double q[8];
#if HWY_MAX_BYTES >= 32
  const hn::Half<F32Tag> dh;
  const hn::ScalableTag<double> dd;
  const F32Vec first = sums[0];
  if constexpr (kRegisters == 1) {
    hn::Store(hn::Add(hn::PromoteTo(dd, hn::LowerHalf(dh, first)),
                      hn::PromoteTo(dd, hn::UpperHalf(dh, first))),
              dd, q);
  } else {
    const F32Vec last = sums[kRegisters - 1];
    hn::Store(hn::Add(hn::PromoteTo(dd, hn::LowerHalf(dh, first)),
                      hn::PromoteTo(dd, hn::LowerHalf(dh, last))),
              dd, q);
    hn::Store(hn::Add(hn::PromoteTo(dd, hn::UpperHalf(dh, first)),
                      hn::PromoteTo(dd, hn::UpperHalf(dh, last))),
              dd, q + 4);
  }
#else
  const F32Tag df;
  HWY_ALIGN float lane[kLine];
  for (size_t r = 0; r < kRegisters; ++r) {
    hn::Store(sums[r], df, lane + r * kLanes);
  }
  for (size_t j = 0; j < 8; ++j) {
    q[j] = static_cast<double>(lane[j]) + static_cast<double>(lane[j + 8]);
  }
#endif
  for (size_t j = 0; j < 4; ++j) q[j] += q[j + 4];
  return (q[0] + q[2]) + (q[1] + q[3]);
}

// The 16-bit floats that are read in place of 8-bit ones; other dtypes are
// their own. Where one instruction widens float16, halves of E4M3FN, which has
// fewer digits in the exponent, are the fastest to make.
inline DType ReadAs(DType dtype) {
  if (dtype == DType::kF8E4M3FN && LoadF16::kIsOneInstruction) {
    return DType::kF16;
  }
  return WiderF8(dtype);
}

// By how much an element is larger than what is read in its place.
inline double Over(const CompareOperand& side) {
  return ReadAs(side.dtype) == WiderF8(side.dtype) ? 1 : kE4M3FNOverHalf;
}

// One side, as kernels read it: 8-bit floats by way of 16-bit ones, a block at
// a time. Kernels of their own for all pairs would be three times the code.
class ComparedSide {
 public:
  ComparedSide(const CompareOperand& side, const CompareExtent& extent)
      : side_(side),
        read_as_(ReadAs(side.dtype)),
        itemsize_(Info(side.dtype).itemsize),
        rows_(extent.cols <= kShortRow ? extent.rows : 0),
        ahead_(std::max<int64_t>(
            1, static_cast<int64_t>(kReadAhead) /
                   std::max<int64_t>(1, extent.cols * itemsize_))) {}

  // `count` elements, at most a block, from (row, col) on; the next call may
  // overwrite them.
  const uint8_t* At(int64_t row, int64_t col, size_t count) {
    const std::byte* p = Address(row, col);
    if (read_as_ == side_.dtype) return reinterpret_cast<const uint8_t*>(p);
    if (read_as_ == WiderF8(side_.dtype)) {
      WidenF8(side_.dtype, p, count, room_);
    } else {
      load::HWY_NAMESPACE::E4M3FNHalves(p, count, room_);
    }
    return reinterpret_cast<const uint8_t*>(room_);
  }

  // Whether a row to come is read ahead: of rows that lie apart and are too
  // short for the hardware to guess where the next starts.
  bool ReadsAhead(int64_t row) const { return row + ahead_ < rows_; }

  const std::byte* Ahead(int64_t row, int64_t col) const {
    return Address(row + ahead_, col);
  }

  // Asks for the line of cache at element `i` behind `ahead`, if one begins
  // there. Little by little: many at once would wait for each other, and what
  // is compared behind them.
  HWY_INLINE void ReadAheadAt(const std::byte* ahead, size_t i) const {
    constexpr size_t kCacheLine = 64;
    const size_t at = i * static_cast<size_t>(itemsize_);
    if (at % kCacheLine == 0) ReadAhead(ahead + at);
  }

  // The elements from (row, col) on, as they are.
  CompareOperand Operand(int64_t row, int64_t col) const {
    return {Address(row, col), side_.dtype, 0, side_.scale};
  }

 private:
  const std::byte* Address(int64_t row, int64_t col) const {
    return side_.data + (row * side_.row_stride + col) * itemsize_;
  }

  static constexpr int64_t kShortRow = 2048;  // elements

  const CompareOperand side_;
  const DType read_as_;
  const int64_t itemsize_;
  const int64_t rows_;   // that may be read ahead
  const int64_t ahead_;  // rows
  alignas(64) uint16_t room_[kCompareBlock];
};

// Running maxima of clean blocks, kept as vectors until the end.
struct Maxima {
  HWY_ALIGN float err[kLine] = {};
  HWY_ALIGN float ref[kLine] = {};
  HWY_ALIGN float elem[kLine] = {};
  HWY_ALIGN uint8_t byte[HWY_MAX_BYTES] = {};
};

// kElements: errors of single elements are measured, see CompareExtent.
// kBytes: both sides are of one 8-bit format, unscaled. How many differ and
// which is the largest, bytes say, of which a vector holds four times as many.
template <class LoadRef, class LoadCand, bool kScaled, bool kElements,
          bool kBytes>
class Kernel {
  static_assert(!kBytes || !kScaled);

 public:
  Kernel(const CompareOperand& ref, const CompareOperand& cand,
         const CompareExtent& extent, ErrorSums* sums)
      : ref_(ref, extent),
        cand_(cand, extent),
        ref_scale_(static_cast<float>(ref.scale * Over(ref))),
        cand_scale_(static_cast<float>(cand.scale * Over(cand))),
        unit_(kScaled ? 1 : Over(ref)),
        element_scale_(extent.element_scale),
        dtype_(ref.dtype),
        sums_(sums) {}

  void Run(const CompareExtent& extent) {
    const auto cols = static_cast<size_t>(extent.cols);
    for (int64_t row = 0; row < extent.rows; ++row) {
      uint64_t logical = extent.logical_begin +
                         static_cast<uint64_t>(row) * extent.logical_stride;
      for (size_t i = 0; i < cols;) {
        const auto at = static_cast<int64_t>(i);
        const size_t n =
            std::min(cols - i, kBlock - static_cast<size_t>(logical % kBlock));
        Block(row, at, n);
        i += n;
        logical += n;
      }
    }
    for (size_t l = 0; l < kLine; ++l) {
      sums_->max_abs_err = std::max(
          sums_->max_abs_err, unit_ * static_cast<double>(maxima_.err[l]));
      sums_->max_abs_ref = std::max(
          sums_->max_abs_ref, unit_ * static_cast<double>(maxima_.ref[l]));
      sums_->max_elem =
          std::max(sums_->max_elem, static_cast<double>(maxima_.elem[l]));
    }
    if constexpr (kBytes) {
      const auto largest = static_cast<std::byte>(
          *std::max_element(maxima_.byte, maxima_.byte + HWY_MAX_BYTES));
      sums_->max_abs_ref =
          std::max(sums_->max_abs_ref, WidenElement(dtype_, &largest));
    }
  }

 private:
  static constexpr size_t kBlock = static_cast<size_t>(kCompareBlock);
  struct Registers {
    // Written out: one that the compiler makes is not for this instruction
    // set, and cannot inline what is.
    HWY_INLINE Registers() {
      const F32Tag df;
      for (size_t r = 0; r < kRegisters; ++r) {
        err_err[r] = err_ref[r] = ref_ref[r] = hn::Zero(df);
        max_err[r] = max_ref[r] = hn::Zero(df);
        elem_elem[r] = max_elem[r] = hn::Zero(df);
      }
    }

    F32Vec err_err[kRegisters];
    F32Vec err_ref[kRegisters];
    F32Vec ref_ref[kRegisters];
    F32Vec max_err[kRegisters];
    F32Vec max_ref[kRegisters];
    F32Vec elem_elem[kRegisters];
    F32Vec max_elem[kRegisters];
    size_t mismatched = 0;
  };

  HWY_INLINE void Line(const uint8_t* ref, const uint8_t* cand,
                       Registers& s) const {
    const F32Tag df;
    const U32Tag du;
    for (size_t r = 0; r < kRegisters; ++r) {
      F32Vec x = LoadRef::Load(df, ref + r * kLanes * LoadRef::kSize);
      F32Vec y = LoadCand::Load(df, cand + r * kLanes * LoadCand::kSize);
      if constexpr (kScaled) {
        x = hn::Mul(x, hn::Set(df, ref_scale_));
        y = hn::Mul(y, hn::Set(df, cand_scale_));
      }
      if constexpr (!kBytes) {
        s.mismatched +=
            hn::CountTrue(du, hn::Ne(hn::BitCast(du, x), hn::BitCast(du, y)));
        s.max_ref[r] = hn::Max(s.max_ref[r], hn::Abs(x));
      }
      const F32Vec err = hn::Sub(y, x);
      s.err_err[r] = hn::MulAdd(err, err, s.err_err[r]);
      s.err_ref[r] = hn::MulAdd(err, x, s.err_ref[r]);
      s.ref_ref[r] = hn::MulAdd(x, x, s.ref_ref[r]);
      s.max_err[r] = hn::Max(s.max_err[r], hn::Abs(err));
      if constexpr (kElements) {
        // One addition and one division, both rounded as IEEE says on every
        // instruction set: an approximate reciprocal would not be.
        const F32Vec elem = hn::Div(
            hn::Abs(err),
            hn::Add(hn::Abs(x),
                    hn::Set(df, static_cast<float>(element_scale_ / unit_))));
        s.elem_elem[r] = hn::MulAdd(elem, elem, s.elem_elem[r]);
        s.max_elem[r] = hn::Max(s.max_elem[r], elem);
      }
    }
  }

  // Of `n` bytes the number of those that differ. Raises `largest`, of a
  // vector, to the first side's sizes, without signs.
  static HWY_INLINE size_t CompareBytes(const std::byte* ref,
                                        const std::byte* cand, size_t n,
                                        uint8_t* largest) {
    constexpr uint8_t kSize = 0x7F;
    const hn::ScalableTag<uint8_t> d;
    const size_t lanes = hn::Lanes(d);
    const auto* r = reinterpret_cast<const uint8_t*>(ref);
    const auto* c = reinterpret_cast<const uint8_t*>(cand);
    auto most = hn::Load(d, largest);
    size_t differ = 0;
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      const auto x = hn::LoadU(d, r + i);
      differ += hn::CountTrue(d, hn::Ne(x, hn::LoadU(d, c + i)));
      most = hn::Max(most, hn::And(x, hn::Set(d, kSize)));
    }
    hn::Store(most, d, largest);
    for (; i < n; ++i) {
      differ += r[i] != c[i] ? 1 : 0;
      largest[0] = std::max<uint8_t>(largest[0], r[i] & kSize);
    }
    return differ;
  }

  // One block, or what there is of it, from (row, col) on: n <= kBlock.
  HWY_INLINE void Block(int64_t row, int64_t col, size_t n) {
    const uint8_t* ref = ref_.At(row, col, n);
    const uint8_t* cand = cand_.At(row, col, n);
    const F32Tag df;
    Registers s;
    size_t i = 0;
    if (ref_.ReadsAhead(row) && cand_.ReadsAhead(row)) {
      const std::byte* ref_ahead = ref_.Ahead(row, col);
      const std::byte* cand_ahead = cand_.Ahead(row, col);
      for (; i + kLine <= n; i += kLine) {
        ref_.ReadAheadAt(ref_ahead, i);
        cand_.ReadAheadAt(cand_ahead, i);
        Line(ref + i * LoadRef::kSize, cand + i * LoadCand::kSize, s);
      }
    }
    for (; i + kLine <= n; i += kLine) {
      Line(ref + i * LoadRef::kSize, cand + i * LoadCand::kSize, s);
    }
    if (i < n) {
      // Reading past the end of the caller's memory is not ours to do. Zeros
      // behind a tail change no statistic.
      HWY_ALIGN uint8_t ref_tail[kLine * 4] = {};
      HWY_ALIGN uint8_t cand_tail[kLine * 4] = {};
      std::memcpy(ref_tail, ref + i * LoadRef::kSize, (n - i) * LoadRef::kSize);
      std::memcpy(cand_tail, cand + i * LoadCand::kSize,
                  (n - i) * LoadCand::kSize);
      Line(ref_tail, cand_tail, s);
    }
    const double square = unit_ * unit_;
    const double err_err = square * SumOfLine(s.err_err);
    const double err_ref = square * SumOfLine(s.err_ref);
    const double ref_ref = square * SumOfLine(s.ref_ref);
    for (size_t r = 1; r < kRegisters; ++r) {
      s.max_err[0] = hn::Max(s.max_err[0], s.max_err[r]);
      s.max_ref[0] = hn::Max(s.max_ref[0], s.max_ref[r]);
      s.max_elem[0] = hn::Max(s.max_elem[0], s.max_elem[r]);
    }
    // Squares of q that vanish in fp32 are below 2^-149; they may. The maximum
    // needs no square, and no bound is near them.
    double elem_elem = 0;
    if constexpr (kElements) elem_elem = SumOfLine(s.elem_elem);
    if (HWY_UNLIKELY(!Trustworthy(err_err, s.max_err[0]) ||
                     !Trustworthy(ref_ref, s.max_ref[0]) ||
                     !std::isfinite(elem_elem))) {
      CompareBlockExact(ref_.Operand(row, col), cand_.Operand(row, col), n,
                        element_scale_, sums_);
      return;
    }
    if constexpr (kBytes) {
      s.mismatched =
          CompareBytes(ref_.Operand(row, col).data,
                       cand_.Operand(row, col).data, n, maxima_.byte);
    }
    sums_->count += static_cast<int64_t>(n);
    sums_->mismatched += static_cast<int64_t>(s.mismatched);
    sums_->sum_sq_err.Add(err_err);
    sums_->sum_err_ref.Add(err_ref);
    sums_->sum_sq_ref.Add(ref_ref);
    sums_->max_block_sq_err = std::max(sums_->max_block_sq_err, err_err);
    hn::Store(hn::Max(hn::Load(df, maxima_.err), s.max_err[0]), df,
              maxima_.err);
    hn::Store(hn::Max(hn::Load(df, maxima_.ref), s.max_ref[0]), df,
              maxima_.ref);
    if constexpr (kElements) {
      sums_->sum_sq_elem.Add(elem_elem);
      hn::Store(hn::Max(hn::Load(df, maxima_.elem), s.max_elem[0]), df,
                maxima_.elem);
    }
  }

  // False if any value was NaN or Inf (a sum of squares then is, too), or if
  // squares left the range of fp32. All zeros are common (padding, masked
  // gradients) and fine.
  static HWY_INLINE bool Trustworthy(double sum_of_squares, F32Vec maxima) {
    if (HWY_LIKELY(sum_of_squares >= kSmallestSafeSum)) {
      return std::isfinite(sum_of_squares);
    }
    if (sum_of_squares != 0) return false;  // NaN included
    const F32Tag df;
    return hn::AllTrue(df, hn::Eq(maxima, hn::Zero(df)));
  }

  ComparedSide ref_;
  ComparedSide cand_;
  const float ref_scale_;
  const float cand_scale_;
  // By which elements are larger than what is added up, on both sides: a power
  // of two, so that sums of products are the same bits, its square apart.
  const double unit_;
  const double element_scale_;
  const DType dtype_;  // of the reference
  ErrorSums* const sums_;
  Maxima maxima_;
};

template <class LoadRef, class LoadCand, bool kScaled, bool kBytes>
void RunKernel(const CompareOperand& ref, const CompareOperand& cand,
               const CompareExtent& extent, ErrorSums* sums) {
  if (extent.element_scale > 0) {
    Kernel<LoadRef, LoadCand, kScaled, true, kBytes>(ref, cand, extent, sums)
        .Run(extent);
  } else {
    Kernel<LoadRef, LoadCand, kScaled, false, kBytes>(ref, cand, extent, sums)
        .Run(extent);
  }
}

template <class LoadRef, class LoadCand>
void RunPair(const CompareOperand& ref, const CompareOperand& cand,
             const CompareExtent& extent, ErrorSums* sums) {
  // Divided by the unit it has to stay a normal number.
  const bool small_scale =
      extent.element_scale > 0 && extent.element_scale < 0x1p-100;
  const bool scaled = ref.scale != 1 || cand.scale != 1 ||
                      Over(ref) != Over(cand) ||
                      (Over(ref) != 1 && small_scale);
  // Multiplying by one changes no bit, and unlike dtypes are few: they have no
  // kernels without it, which would take a third of the time of compiling.
  if constexpr (std::is_same_v<LoadRef, LoadCand>) {
    if (!scaled) {
      if constexpr (std::is_same_v<LoadRef, LoadF16>) {
        if (ref.dtype == cand.dtype && IsF8(ref.dtype)) {
          RunKernel<LoadRef, LoadCand, false, true>(ref, cand, extent, sums);
          return;
        }
      }
      RunKernel<LoadRef, LoadCand, false, false>(ref, cand, extent, sums);
      return;
    }
  }
  RunKernel<LoadRef, LoadCand, true, false>(ref, cand, extent, sums);
}

template <class LoadRef>
void RunRef(const CompareOperand& ref, const CompareOperand& cand,
            const CompareExtent& extent, ErrorSums* sums) {
  switch (ReadAs(cand.dtype)) {
    case DType::kF16:
      return RunPair<LoadRef, LoadF16>(ref, cand, extent, sums);
    case DType::kBF16:
      return RunPair<LoadRef, LoadBF16>(ref, cand, extent, sums);
    default:
      return RunPair<LoadRef, LoadF32>(ref, cand, extent, sums);
  }
}

void CompareFast(const CompareOperand& ref, const CompareOperand& cand,
                 const CompareExtent& extent, ErrorSums* sums) {
  switch (ReadAs(ref.dtype)) {
    case DType::kF16:
      return RunRef<LoadF16>(ref, cand, extent, sums);
    case DType::kBF16:
      return RunRef<LoadBF16>(ref, cand, extent, sums);
    default:
      return RunRef<LoadF32>(ref, cand, extent, sums);
  }
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ttrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace {
namespace {

bool IsFastDType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 ||
         dtype == DType::kF16 || IsF8(dtype);
}

// Multiplying by a power of two is exact in fp32. From 2^-32 to 2^32 it is so
// for all values but those within 2^32 of the ends of the range: overflow is
// seen and done again in double; results below 2^-126 may lose bits.
bool IsFastScale(double scale) {
  int exponent = 0;
  return std::frexp(scale, &exponent) == 0.5 && exponent >= -31 &&
         exponent <= 33;
}

// Elements are divided by |ref| + c in fp32, where c must be a normal number.
bool IsFastElementScale(double c) {
  return c == 0 || (c >= 0x1p-126 && c <= 0x1p127);
}

void CompareRowsExact(const CompareOperand& ref, const CompareOperand& cand,
                      const CompareExtent& extent, ErrorSums* sums) {
  constexpr auto kBlock = static_cast<uint64_t>(kCompareBlock);
  CompareOperand r = ref;
  CompareOperand c = cand;
  for (int64_t row = 0; row < extent.rows; ++row) {
    uint64_t logical = extent.logical_begin +
                       static_cast<uint64_t>(row) * extent.logical_stride;
    for (int64_t i = 0; i < extent.cols;) {
      const auto n = std::min(extent.cols - i,
                              static_cast<int64_t>(kBlock - logical % kBlock));
      r.data = ref.data + (row * ref.row_stride + i) * Info(ref.dtype).itemsize;
      c.data =
          cand.data + (row * cand.row_stride + i) * Info(cand.dtype).itemsize;
      CompareBlockExact(r, c, static_cast<size_t>(n), extent.element_scale,
                        sums);
      i += n;
      logical += static_cast<uint64_t>(n);
    }
  }
}

}  // namespace

HWY_EXPORT(CompareFast);
HWY_EXPORT(TargetName);

std::string_view CompareTargetName() {
  return HWY_DYNAMIC_DISPATCH(TargetName)();
}

bool HasFastPath(const CompareOperand& ref, const CompareOperand& cand) {
  return IsFastDType(ref.dtype) && IsFastDType(cand.dtype) &&
         IsFastScale(ref.scale) && IsFastScale(cand.scale);
}

void CompareRows(const CompareOperand& ref, const CompareOperand& cand,
                 const CompareExtent& extent, ErrorSums* sums) {
  if (!HasFastPath(ref, cand) || !IsFastElementScale(extent.element_scale)) {
    CompareRowsExact(ref, cand, extent, sums);
  } else {
    HWY_DYNAMIC_DISPATCH(CompareFast)(ref, cand, extent, sums);
  }
}

}  // namespace ttrace
#endif  // HWY_ONCE
