#include "src/compare/compare_exact.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/numeric/widen.h"

namespace ttrace {
namespace {

constexpr size_t kBlock = static_cast<size_t>(kCompareBlock);
constexpr size_t kLanes = 8;

bool IsInteger(DType dtype) { return !Info(dtype).floating; }

// Both finite, as it almost always is. Separate lanes let the compiler use
// vectors without reordering an addition. Returns false, and leaves `sums`
// alone, if a sum shows that some value was not finite (or a square overflowed
// double, which the careful loop reports as an infinite sum).
bool CompareFinite(const double* ref, const double* cand, size_t count,
                   ErrorSums* sums) {
  double err_err[kLanes] = {};
  double err_ref[kLanes] = {};
  double ref_ref[kLanes] = {};
  double max_err[kLanes] = {};
  double max_ref[kLanes] = {};
  uint64_t mismatched[kLanes] = {};
  // REQUIRES zeros up to a multiple of kLanes; they change no sum.
  for (size_t i = 0; i < count; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const double r = ref[i + l];
      const double err = cand[i + l] - r;
      err_err[l] += err * err;
      err_ref[l] += err * r;
      ref_ref[l] += r * r;
      max_err[l] = std::max(max_err[l], std::fabs(err));
      max_ref[l] = std::max(max_ref[l], std::fabs(r));
      mismatched[l] +=
          std::bit_cast<uint64_t>(r) != std::bit_cast<uint64_t>(cand[i + l])
              ? 1U
              : 0U;
    }
  }
  double total[3] = {};
  uint64_t total_mismatched = 0;
  for (size_t l = 0; l < kLanes; ++l) {
    total[0] += err_err[l];
    total[1] += err_ref[l];
    total[2] += ref_ref[l];
    total_mismatched += mismatched[l];
  }
  if (!std::isfinite(total[0]) || !std::isfinite(total[1]) ||
      !std::isfinite(total[2])) {
    return false;
  }
  sums->sum_sq_err.Add(total[0]);
  sums->sum_err_ref.Add(total[1]);
  sums->sum_sq_ref.Add(total[2]);
  sums->mismatched += static_cast<int64_t>(total_mismatched);
  sums->max_abs_err =
      std::max(sums->max_abs_err, *std::max_element(max_err, max_err + kLanes));
  sums->max_abs_ref =
      std::max(sums->max_abs_ref, *std::max_element(max_ref, max_ref + kLanes));
  sums->max_block_sq_err = std::max(sums->max_block_sq_err, total[0]);
  return true;
}

// The errors of single elements of a block that CompareFinite took. Separate,
// because dividing costs more than all the rest. REQUIRES zeros as above.
void MeasureElements(const double* ref, const double* cand, size_t count,
                     double element_scale, ErrorSums* sums) {
  double max_elem[kLanes] = {};
  double sum_sq[kLanes] = {};
  for (size_t i = 0; i < count; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const double r = ref[i + l];
      const double q =
          std::fabs(cand[i + l] - r) / (std::fabs(r) + element_scale);
      max_elem[l] = std::max(max_elem[l], q);
      sum_sq[l] += q * q;
    }
  }
  double total = 0;
  for (size_t l = 0; l < kLanes; ++l) total += sum_sq[l];
  sums->max_elem =
      std::max(sums->max_elem, *std::max_element(max_elem, max_elem + kLanes));
  sums->sum_sq_elem.Add(total);
}

void CompareCarefully(const double* ref, const double* cand, size_t count,
                      double element_scale, ErrorSums* sums) {
  double block_sq_err = 0;
  for (size_t i = 0; i < count; ++i) {
    const double r = ref[i];
    const double c = cand[i];
    if (std::isfinite(r) && std::isfinite(c)) {
      const double err = c - r;
      sums->mismatched +=
          std::bit_cast<uint64_t>(r) != std::bit_cast<uint64_t>(c) ? 1 : 0;
      sums->sum_sq_err.Add(err * err);
      block_sq_err += err * err;
      sums->sum_err_ref.Add(err * r);
      sums->sum_sq_ref.Add(r * r);
      sums->max_abs_err = std::max(sums->max_abs_err, std::fabs(err));
      sums->max_abs_ref = std::max(sums->max_abs_ref, std::fabs(r));
      if (element_scale > 0) {
        const double q = std::fabs(err) / (std::fabs(r) + element_scale);
        sums->max_elem = std::max(sums->max_elem, q);
        sums->sum_sq_elem.Add(q * q);
      }
      continue;
    }
    sums->nonfinite_ref += std::isfinite(r) ? 0 : 1;
    sums->nonfinite_cand += std::isfinite(c) ? 0 : 1;
    // Payload and sign of a NaN are accidents of the instruction that made it.
    const bool same = (std::isnan(r) && std::isnan(c)) || r == c;
    sums->nonfinite_differ += same ? 0 : 1;
    sums->mismatched += same ? 0 : 1;
  }
  sums->max_block_sq_err = std::max(sums->max_block_sq_err, block_sq_err);
}

int64_t LoadInteger(DType dtype, const std::byte* p) {
  switch (dtype) {
    case DType::kBool:
      return LoadAs<uint8_t>(p) != 0 ? 1 : 0;
    case DType::kU8:
      return LoadAs<uint8_t>(p);
    case DType::kI8:
      return LoadAs<int8_t>(p);
    case DType::kI16:
      return LoadAs<int16_t>(p);
    case DType::kI32:
      return LoadAs<int32_t>(p);
    default:
      return LoadAs<int64_t>(p);
  }
}

// Two int64 beyond 2^53 may be one double, so the difference is taken first.
void CompareIntegers(const CompareOperand& ref, const CompareOperand& cand,
                     size_t count, ErrorSums* sums) {
  const auto ref_size = static_cast<size_t>(Info(ref.dtype).itemsize);
  const auto cand_size = static_cast<size_t>(Info(cand.dtype).itemsize);
  double total[3] = {};
  for (size_t i = 0; i < count; ++i) {
    const int64_t r = LoadInteger(ref.dtype, ref.data + i * ref_size);
    const int64_t c = LoadInteger(cand.dtype, cand.data + i * cand_size);
    const auto err = static_cast<double>(static_cast<__int128>(c) - r);
    const auto value = static_cast<double>(r);
    total[0] += err * err;
    total[1] += err * value;
    total[2] += value * value;
    sums->mismatched += r != c ? 1 : 0;
    sums->max_abs_err = std::max(sums->max_abs_err, std::fabs(err));
    sums->max_abs_ref = std::max(sums->max_abs_ref, std::fabs(value));
  }
  sums->sum_sq_err.Add(total[0]);
  sums->sum_err_ref.Add(total[1]);
  sums->sum_sq_ref.Add(total[2]);
  sums->max_block_sq_err = std::max(sums->max_block_sq_err, total[0]);
}

void WidenScaled(const CompareOperand& side, size_t count, double* out) {
  Widen(side.dtype, side.data, count, out);
  if (side.scale != 1) {
    for (size_t i = 0; i < count; ++i) out[i] *= side.scale;
  }
  const size_t padded = (count + kLanes - 1) / kLanes * kLanes;
  std::fill(out + count, out + padded, 0.0);
}

}  // namespace

void CompareBlockExact(const CompareOperand& ref, const CompareOperand& cand,
                       size_t count, double element_scale, ErrorSums* sums) {
  static_assert(kBlock % kLanes == 0);
  sums->count += static_cast<int64_t>(count);
  if (IsInteger(ref.dtype) && IsInteger(cand.dtype) && ref.scale == 1 &&
      cand.scale == 1) {
    CompareIntegers(ref, cand, count, sums);
    return;
  }
  double r[kBlock];
  double c[kBlock];
  WidenScaled(ref, count, r);
  WidenScaled(cand, count, c);
  if (!CompareFinite(r, c, count, sums)) {
    CompareCarefully(r, c, count, element_scale, sums);
  } else if (element_scale > 0) {
    MeasureElements(r, c, count, element_scale, sums);
  }
}

}  // namespace ttrace
