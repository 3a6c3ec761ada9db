// Register arrays below need vectors of a size that is known while compiling.
// Where there are only scalable ones (SVE, RVV) the next best set is used: NEON
// on Arm. Before any header of Highway.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#include "src/compare/cell_kernel.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/compare/cell_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ttrace {
// Of its own: the namespaces of instruction sets are shared by all kernels.
namespace cells {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32Tag = hn::ScalableTag<float>;
using U32Tag = hn::ScalableTag<uint32_t>;
using F32Vec = hn::Vec<F32Tag>;

#if HWY_TARGET == HWY_SCALAR
inline constexpr size_t kLanes = 1;
#else
static_assert(!HWY_HAVE_SCALABLE, "they are disabled above");
inline constexpr size_t kLanes = HWY_MAX_BYTES / sizeof(float);
#endif
inline constexpr size_t kRegisters = kCellLanes / kLanes;

struct LoadF32 {
  static constexpr size_t kSize = 4;
  static HWY_INLINE F32Vec Load(const uint8_t* p) {
    const F32Tag df;
    return hn::LoadU(df, reinterpret_cast<const float*>(p));
  }
};
struct LoadBF16 {
  static constexpr size_t kSize = 2;
  static HWY_INLINE F32Vec Load(const uint8_t* p) {
    const F32Tag df;
    const U32Tag du;
    const hn::Rebind<uint16_t, F32Tag> d16;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
    return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
  }
};

struct Registers {
  F32Vec err_err[kRegisters];
  F32Vec err_ref[kRegisters];
  F32Vec ref_ref[kRegisters];
  F32Vec elem_elem[kRegisters];
  F32Vec max_err[kRegisters];
  F32Vec max_ref[kRegisters];
  F32Vec max_elem[kRegisters];
};

template <class Load, bool kElements>
HWY_INLINE size_t Line(const uint8_t* ref, const uint8_t* cand, F32Vec scale,
                       Registers& s, F32Vec* block) {
  const U32Tag du;
  size_t mismatched = 0;
  for (size_t r = 0; r < kRegisters; ++r) {
    const F32Vec x = Load::Load(ref + r * kLanes * Load::kSize);
    const F32Vec y = Load::Load(cand + r * kLanes * Load::kSize);
    mismatched +=
        hn::CountTrue(du, hn::Ne(hn::BitCast(du, x), hn::BitCast(du, y)));
    const F32Vec err = hn::Sub(y, x);
    const F32Vec size = hn::Abs(x);
    s.err_err[r] = hn::MulAdd(err, err, s.err_err[r]);
    s.err_ref[r] = hn::MulAdd(err, x, s.err_ref[r]);
    s.ref_ref[r] = hn::MulAdd(x, x, s.ref_ref[r]);
    block[r] = hn::MulAdd(err, err, block[r]);
    s.max_err[r] = hn::Max(s.max_err[r], hn::Abs(err));
    s.max_ref[r] = hn::Max(s.max_ref[r], size);
    if constexpr (kElements) {
      // Rounded as IEEE says on every instruction set.
      const F32Vec elem = hn::Div(hn::Abs(err), hn::Add(size, scale));
      s.elem_elem[r] = hn::MulAdd(elem, elem, s.elem_elem[r]);
      s.max_elem[r] = hn::Max(s.max_elem[r], elem);
    }
  }
  return mismatched;
}

template <class Load, bool kElements>
void Runs(const CellOperands& operands, std::span<const CellRun> runs,
          float element_scale, CellLanes* lanes, float* block,
          double* block_sums) {
  const F32Tag df;
  const auto* ref = reinterpret_cast<const uint8_t*>(operands.ref);
  const auto* cand = reinterpret_cast<const uint8_t*>(operands.cand);
  const F32Vec scale = hn::Set(df, element_scale);
  F32Vec of_block[kRegisters];
  for (size_t r = 0; r < kRegisters; ++r) {
    of_block[r] = hn::LoadU(df, block + r * kLanes);
  }
  for (const CellRun& run : runs) {
    CellLanes& cell = lanes[run.slot];
    Registers s;
    for (size_t r = 0; r < kRegisters; ++r) {
      const size_t at = r * kLanes;
      s.err_err[r] = hn::Load(df, cell.err_err + at);
      s.err_ref[r] = hn::Load(df, cell.err_ref + at);
      s.ref_ref[r] = hn::Load(df, cell.ref_ref + at);
      s.elem_elem[r] = hn::Load(df, cell.elem_elem + at);
      s.max_err[r] = hn::Load(df, cell.max_err + at);
      s.max_ref[r] = hn::Load(df, cell.max_ref + at);
      s.max_elem[r] = hn::Load(df, cell.max_elem + at);
    }
    size_t mismatched = 0;
    const size_t n = run.count;
    size_t i = 0;
    for (; i + kCellLanes <= n; i += kCellLanes) {
      mismatched += Line<Load, kElements>(
          ref + i * Load::kSize, cand + i * Load::kSize, scale, s, of_block);
    }
    if (i < n) {
      // Zeros behind a tail change no statistic.
      HWY_ALIGN uint8_t ref_tail[kCellLanes * 4] = {};
      HWY_ALIGN uint8_t cand_tail[kCellLanes * 4] = {};
      std::memcpy(ref_tail, ref + i * Load::kSize, (n - i) * Load::kSize);
      std::memcpy(cand_tail, cand + i * Load::kSize, (n - i) * Load::kSize);
      mismatched +=
          Line<Load, kElements>(ref_tail, cand_tail, scale, s, of_block);
    }
    ref += n * Load::kSize;
    cand += n * Load::kSize;
    for (size_t r = 0; r < kRegisters; ++r) {
      const size_t at = r * kLanes;
      hn::Store(s.err_err[r], df, cell.err_err + at);
      hn::Store(s.err_ref[r], df, cell.err_ref + at);
      hn::Store(s.ref_ref[r], df, cell.ref_ref + at);
      hn::Store(s.elem_elem[r], df, cell.elem_elem + at);
      hn::Store(s.max_err[r], df, cell.max_err + at);
      hn::Store(s.max_ref[r], df, cell.max_ref + at);
      hn::Store(s.max_elem[r], df, cell.max_elem + at);
    }
    cell.mismatched += mismatched;
    if (run.ends_block) {
      HWY_ALIGN float sums[kCellLanes];
      for (size_t r = 0; r < kRegisters; ++r) {
        hn::Store(of_block[r], df, sums + r * kLanes);
        of_block[r] = hn::Zero(df);
      }
      *block_sums++ = SumOfLanes(sums);
    }
  }
  for (size_t r = 0; r < kRegisters; ++r) {
    hn::StoreU(of_block[r], df, block + r * kLanes);
  }
}

void CompareAll(const CellOperands& operands, std::span<const CellRun> runs,
                float element_scale, CellLanes* lanes, float* block,
                double* block_sums) {
  const bool elements = element_scale > 0;
  if (operands.dtype == DType::kF32) {
    if (elements) {
      Runs<LoadF32, true>(operands, runs, element_scale, lanes, block,
                          block_sums);
    } else {
      Runs<LoadF32, false>(operands, runs, 1, lanes, block, block_sums);
    }
  } else if (elements) {
    Runs<LoadBF16, true>(operands, runs, element_scale, lanes, block,
                         block_sums);
  } else {
    Runs<LoadBF16, false>(operands, runs, 1, lanes, block, block_sums);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace cells
}  // namespace ttrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace {
namespace cells {
HWY_EXPORT(CompareAll);
}  // namespace cells

bool HasCellKernel(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16;
}

void CompareRuns(const CellOperands& operands, std::span<const CellRun> runs,
                 float element_scale, CellLanes* lanes, float* block,
                 double* block_sums) {
  using namespace cells;  // NOLINT: the dispatch macro looks names up in here
  HWY_DYNAMIC_DISPATCH(CompareAll)
  (operands, runs, element_scale, lanes, block, block_sums);
}

double SumOfLanes(const float* lanes) {
  double q[kCellLanes / 2];
  for (size_t j = 0; j < 8; ++j) {
    q[j] = static_cast<double>(lanes[j]) + static_cast<double>(lanes[j + 8]);
  }
  for (size_t j = 0; j < 4; ++j) q[j] += q[j + 4];
  return (q[0] + q[2]) + (q[1] + q[3]);
}

}  // namespace ttrace
#endif  // HWY_ONCE
