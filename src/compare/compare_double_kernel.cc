// Built with -ffp-contract=off: see the header.

#include "src/compare/compare_double_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/numeric/fixed_vectors.h"

// Highway compiles the code between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE once per instruction set by re-including this file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/compare/compare_double_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <hwy/highway.h>

// The namespaces of instruction sets are shared by all kernels: names need one
// of their own.
HWY_BEFORE_NAMESPACE();
namespace ttrace::doubles {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F64 = hn::CappedTag<double, kDoubleLine>;
using U64 = hn::RebindToUnsigned<F64>;
using Vec = hn::Vec<F64>;

#if HWY_TARGET == HWY_SCALAR
inline constexpr size_t kLanes = 1;
#else
static_assert(!HWY_HAVE_SCALABLE, "fixed_vectors.h disables them");
inline constexpr size_t kLanes =
    HWY_MIN(HWY_MAX_BYTES / sizeof(double), kDoubleLine);
#endif
inline constexpr size_t kRegisters = kDoubleLine / kLanes;  // of a line

struct Registers {
  // Written out: one that the compiler makes is not for this instruction set,
  // and cannot inline what is.
  HWY_INLINE Registers() {
    const F64 d;
    for (size_t r = 0; r < kRegisters; ++r) {
      sq_err[r] = err_ref[r] = sq_ref[r] = hn::Zero(d);
      max_err[r] = max_ref[r] = hn::Zero(d);
      sq_elem[r] = max_elem[r] = hn::Zero(d);
    }
  }

  Vec sq_err[kRegisters];
  Vec err_ref[kRegisters];
  Vec sq_ref[kRegisters];
  Vec max_err[kRegisters];
  Vec max_ref[kRegisters];
  Vec sq_elem[kRegisters];
  Vec max_elem[kRegisters];
  size_t mismatched = 0;
};

template <bool kElements>
HWY_INLINE void Line(const double* ref, const double* cand,
                     double element_scale, Registers& s) {
  const F64 d;
  const U64 du;
  for (size_t r = 0; r < kRegisters; ++r) {
    const Vec x = hn::LoadU(d, ref + r * kLanes);
    const Vec y = hn::LoadU(d, cand + r * kLanes);
    s.mismatched +=
        hn::CountTrue(du, hn::Ne(hn::BitCast(du, x), hn::BitCast(du, y)));
    const Vec err = hn::Sub(y, x);
    s.sq_err[r] = hn::Add(s.sq_err[r], hn::Mul(err, err));
    s.err_ref[r] = hn::Add(s.err_ref[r], hn::Mul(err, x));
    s.sq_ref[r] = hn::Add(s.sq_ref[r], hn::Mul(x, x));
    s.max_err[r] = hn::Max(s.max_err[r], hn::Abs(err));
    s.max_ref[r] = hn::Max(s.max_ref[r], hn::Abs(x));
    if constexpr (kElements) {
      const Vec elem =
          hn::Div(hn::Abs(err), hn::Add(hn::Abs(x), hn::Set(d, element_scale)));
      s.sq_elem[r] = hn::Add(s.sq_elem[r], hn::Mul(elem, elem));
      s.max_elem[r] = hn::Max(s.max_elem[r], elem);
    }
  }
}

HWY_INLINE double Sum(const Vec* lanes) {
  HWY_ALIGN double lane[kDoubleLine];
  for (size_t r = 0; r < kRegisters; ++r) {
    hn::Store(lanes[r], F64(), lane + r * kLanes);
  }
  double total = 0;
  for (const double x : lane) total += x;
  return total;
}

HWY_INLINE double Largest(const Vec* lanes) {
  HWY_ALIGN double lane[kDoubleLine];
  for (size_t r = 0; r < kRegisters; ++r) {
    hn::Store(lanes[r], F64(), lane + r * kLanes);
  }
  return *std::max_element(lane, lane + kDoubleLine);
}

template <bool kElements>
DoubleBlock Block(const double* ref, const double* cand, size_t count,
                  double element_scale) {
  Registers s;
  size_t i = 0;
  for (; i + kDoubleLine <= count; i += kDoubleLine) {
    Line<kElements>(ref + i, cand + i, element_scale, s);
  }
  if (i < count) {
    // Zeros behind a tail change no statistic.
    double ref_tail[kDoubleLine] = {};
    double cand_tail[kDoubleLine] = {};
    std::memcpy(ref_tail, ref + i, (count - i) * sizeof(double));
    std::memcpy(cand_tail, cand + i, (count - i) * sizeof(double));
    Line<kElements>(ref_tail, cand_tail, element_scale, s);
  }
  DoubleBlock out;
  out.sq_err = Sum(s.sq_err);
  out.err_ref = Sum(s.err_ref);
  out.sq_ref = Sum(s.sq_ref);
  out.max_err = Largest(s.max_err);
  out.max_ref = Largest(s.max_ref);
  out.mismatched = static_cast<int64_t>(s.mismatched);
  if constexpr (kElements) {
    out.sq_elem = Sum(s.sq_elem);
    out.max_elem = Largest(s.max_elem);
  }
  return out;
}

DoubleBlock Compare(const double* ref, const double* cand, size_t count,
                    double element_scale) {
  if (element_scale > 0) {
    return Block<true>(ref, cand, count, element_scale);
  }
  return Block<false>(ref, cand, count, 0);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ttrace::doubles
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace {
namespace doubles {

HWY_EXPORT(Compare);

}  // namespace doubles

bool DoubleBlock::finite() const {
  return std::isfinite(sq_err) && std::isfinite(err_ref) &&
         std::isfinite(sq_ref);
}

DoubleBlock CompareDoubles(const double* ref, const double* cand, size_t count,
                           double element_scale) {
  using namespace doubles;  // NOLINT(google-build-using-namespace)
  return HWY_DYNAMIC_DISPATCH(Compare)(ref, cand, count, element_scale);
}

}  // namespace ttrace
#endif  // HWY_ONCE
