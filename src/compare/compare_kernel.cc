#include "src/compare/compare_kernel.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/compare/compare_exact.h"
#include "src/numeric/fixed_vectors.h"
#include "src/numeric/widen.h"

// Highway compiles the code between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE once per instruction set by re-including this file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/compare/compare_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <hwy/highway.h>

#include "src/numeric/load_f32-inl.h"

#ifndef TTRACE_SRC_COMPARE_COMPARE_KERNEL_CC_ONCE_
#define TTRACE_SRC_COMPARE_COMPARE_KERNEL_CC_ONCE_
namespace ttrace {

// The logical line: lane j of 16 adds up elements j, j + 16, ... of a block on
// every instruction set, so that all of them add in the same order.
inline constexpr size_t kLine = 16;

// One side, as kernels read it: 8-bit floats by way of the 16-bit ones that
// hold them, a block at a time. Kernels of their own for all pairs would be
// three times the code.
class ComparedSide {
 public:
  ComparedSide(const CompareOperand& side, const CompareExtent& extent)
      : side_(side),
        dtype_(WiderF8(side.dtype)),
        itemsize_(Info(side.dtype).itemsize),
        rows_(extent.cols <= kShortRow ? extent.rows : 0),
        ahead_(std::max<int64_t>(
            1, kBytesAhead / std::max<int64_t>(1, extent.cols * itemsize_))) {}

  // `count` elements, at most a block, from (row, col) on; the next call may
  // overwrite them.
  const uint8_t* At(int64_t row, int64_t col, size_t count) {
    const std::byte* p = Address(row, col);
    if (dtype_ == side_.dtype) return reinterpret_cast<const uint8_t*>(p);
    WidenF8(side_.dtype, p, count, room_);
    return reinterpret_cast<const uint8_t*>(room_);
  }

  // `count` elements of a row to come, from `col` on, where there are rows
  // apart: they are too short for the hardware to guess where the next starts.
  void Prefetch(int64_t row, int64_t col, size_t count) const {
    if (row + ahead_ >= rows_) return;
    const std::byte* p = Address(row + ahead_, col);
    const size_t bytes = count * static_cast<size_t>(itemsize_);
    for (size_t i = 0; i < bytes; i += 64) hwy::Prefetch(p + i);
  }

  // What At() returned.
  CompareOperand Operand(const uint8_t* p) const {
    return {reinterpret_cast<const std::byte*>(p), dtype_, 0, side_.scale};
  }

 private:
  const std::byte* Address(int64_t row, int64_t col) const {
    return side_.data + (row * side_.row_stride + col) * itemsize_;
  }

  static constexpr int64_t kShortRow = 2048;  // elements
  static constexpr int64_t kBytesAhead = 2048;

  const CompareOperand side_;
  const DType dtype_;
  const int64_t itemsize_;
  const int64_t rows_;   // that may be read ahead
  const int64_t ahead_;  // rows
  alignas(64) uint16_t room_[kCompareBlock];
};

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

// Running maxima of clean blocks, kept as vectors until the end.
struct Maxima {
  HWY_ALIGN float err[kLine] = {};
  HWY_ALIGN float ref[kLine] = {};
  HWY_ALIGN float elem[kLine] = {};
};

// kElements: errors of single elements are measured, see CompareExtent.
template <class LoadRef, class LoadCand, bool kScaled, bool kElements>
class Kernel {
 public:
  Kernel(const CompareOperand& ref, const CompareOperand& cand,
         const CompareExtent& extent, ErrorSums* sums)
      : ref_(ref, extent),
        cand_(cand, extent),
        ref_scale_(static_cast<float>(ref.scale)),
        cand_scale_(static_cast<float>(cand.scale)),
        element_scale_(extent.element_scale),
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
        ref_.Prefetch(row, at, n);
        cand_.Prefetch(row, at, n);
        Block(ref_.At(row, at, n), cand_.At(row, at, n), n);
        i += n;
        logical += n;
      }
    }
    for (size_t l = 0; l < kLine; ++l) {
      sums_->max_abs_err =
          std::max(sums_->max_abs_err, static_cast<double>(maxima_.err[l]));
      sums_->max_abs_ref =
          std::max(sums_->max_abs_ref, static_cast<double>(maxima_.ref[l]));
      sums_->max_elem =
          std::max(sums_->max_elem, static_cast<double>(maxima_.elem[l]));
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
      s.mismatched +=
          hn::CountTrue(du, hn::Ne(hn::BitCast(du, x), hn::BitCast(du, y)));
      const F32Vec err = hn::Sub(y, x);
      s.err_err[r] = hn::MulAdd(err, err, s.err_err[r]);
      s.err_ref[r] = hn::MulAdd(err, x, s.err_ref[r]);
      s.ref_ref[r] = hn::MulAdd(x, x, s.ref_ref[r]);
      s.max_err[r] = hn::Max(s.max_err[r], hn::Abs(err));
      s.max_ref[r] = hn::Max(s.max_ref[r], hn::Abs(x));
      if constexpr (kElements) {
        // One addition and one division, both rounded as IEEE says on every
        // instruction set: an approximate reciprocal would not be.
        const F32Vec elem =
            hn::Div(hn::Abs(err),
                    hn::Add(hn::Abs(x),
                            hn::Set(df, static_cast<float>(element_scale_))));
        s.elem_elem[r] = hn::MulAdd(elem, elem, s.elem_elem[r]);
        s.max_elem[r] = hn::Max(s.max_elem[r], elem);
      }
    }
  }

  // One block, or what there is of it: n <= kBlock.
  HWY_INLINE void Block(const uint8_t* ref, const uint8_t* cand, size_t n) {
    const F32Tag df;
    Registers s;
    size_t i = 0;
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
    const double err_err = SumOfLine(s.err_err);
    const double err_ref = SumOfLine(s.err_ref);
    const double ref_ref = SumOfLine(s.ref_ref);
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
      CompareBlockExact(ref_.Operand(ref), cand_.Operand(cand), n,
                        element_scale_, sums_);
      return;
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
  const double element_scale_;
  ErrorSums* const sums_;
  Maxima maxima_;
};

template <class LoadRef, class LoadCand>
void RunPair(const CompareOperand& ref, const CompareOperand& cand,
             const CompareExtent& extent, ErrorSums* sums) {
  const bool scaled = ref.scale != 1 || cand.scale != 1;
  if (extent.element_scale > 0) {
    if (scaled) {
      Kernel<LoadRef, LoadCand, true, true>(ref, cand, extent, sums)
          .Run(extent);
    } else {
      Kernel<LoadRef, LoadCand, false, true>(ref, cand, extent, sums)
          .Run(extent);
    }
  } else if (scaled) {
    Kernel<LoadRef, LoadCand, true, false>(ref, cand, extent, sums).Run(extent);
  } else {
    Kernel<LoadRef, LoadCand, false, false>(ref, cand, extent, sums)
        .Run(extent);
  }
}

template <class LoadRef>
void RunRef(const CompareOperand& ref, const CompareOperand& cand,
            const CompareExtent& extent, ErrorSums* sums) {
  switch (WiderF8(cand.dtype)) {
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
  switch (WiderF8(ref.dtype)) {
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

bool IsF8(DType dtype) { return WiderF8(dtype) != dtype; }

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
