#include "src/compare/cells/cell_kernel.h"

#include <cstring>

#include "src/numeric/fixed_vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/compare/cells/cell_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <hwy/highway.h>

#include "src/numeric/load_f32-inl.h"

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
static_assert(!HWY_HAVE_SCALABLE, "fixed_vectors.h disables them");
inline constexpr size_t kLanes = HWY_MAX_BYTES / sizeof(float);
#endif
inline constexpr size_t kRegisters = kCellLanes / kLanes;

using load::HWY_NAMESPACE::LoadBF16;
using load::HWY_NAMESPACE::LoadF16;
using load::HWY_NAMESPACE::LoadF32;

struct Registers {
  // The compiler's own would be of no instruction set: GCC does not inline
  // those of vectors of Arm into it.
  HWY_INLINE Registers() {}

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
  const F32Tag df;
  const U32Tag du;
  size_t mismatched = 0;
  for (size_t r = 0; r < kRegisters; ++r) {
    const F32Vec x = Load::Load(df, ref + r * kLanes * Load::kSize);
    const F32Vec y = Load::Load(df, cand + r * kLanes * Load::kSize);
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

template <class Load>
void RunsOf(const CellOperands& operands, std::span<const CellRun> runs,
            float element_scale, CellLanes* lanes, float* block,
            double* block_sums) {
  if (element_scale > 0) {
    Runs<Load, true>(operands, runs, element_scale, lanes, block, block_sums);
  } else {
    Runs<Load, false>(operands, runs, 1, lanes, block, block_sums);
  }
}

void CompareAll(const CellOperands& operands, std::span<const CellRun> runs,
                float element_scale, CellLanes* lanes, float* block,
                double* block_sums) {
  switch (operands.dtype) {
    case DType::kF16:
      return RunsOf<LoadF16>(operands, runs, element_scale, lanes, block,
                             block_sums);
    case DType::kBF16:
      return RunsOf<LoadBF16>(operands, runs, element_scale, lanes, block,
                              block_sums);
    default:
      return RunsOf<LoadF32>(operands, runs, element_scale, lanes, block,
                             block_sums);
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
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
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
