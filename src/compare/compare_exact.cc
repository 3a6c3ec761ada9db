#include "src/compare/compare_exact.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/compare/compare_double_kernel.h"
#include "src/numeric/widen.h"

namespace ttrace {
namespace {

constexpr size_t kBlock = static_cast<size_t>(kCompareBlock);

bool IsInteger(DType dtype) { return !Info(dtype).floating; }

void Add(const DoubleBlock& block, ErrorSums* sums) {
  sums->sum_sq_err.Add(block.sq_err);
  sums->sum_err_ref.Add(block.err_ref);
  sums->sum_sq_ref.Add(block.sq_ref);
  sums->mismatched += block.mismatched;
  sums->max_abs_err = std::max(sums->max_abs_err, block.max_err);
  sums->max_abs_ref = std::max(sums->max_abs_ref, block.max_ref);
  sums->max_block_sq_err = std::max(sums->max_block_sq_err, block.sq_err);
  sums->max_elem = std::max(sums->max_elem, block.max_elem);
  sums->sum_sq_elem.Add(block.sq_elem);
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

// A block's elements as doubles: where they lie, if that is what they are.
const double* Doubles(const CompareOperand& side, size_t count, double* room) {
  if (side.dtype == DType::kF64 && side.scale == 1 &&
      reinterpret_cast<uintptr_t>(side.data) % alignof(double) == 0) {
    return reinterpret_cast<const double*>(side.data);
  }
  WidenScaled(side.dtype, side.data, count, side.scale, room);
  return room;
}

}  // namespace

void CompareBlockExact(const CompareOperand& ref, const CompareOperand& cand,
                       size_t count, double element_scale, ErrorSums* sums) {
  sums->count += static_cast<int64_t>(count);
  if (IsInteger(ref.dtype) && IsInteger(cand.dtype) && ref.scale == 1 &&
      cand.scale == 1) {
    CompareIntegers(ref, cand, count, sums);
    return;
  }
  double ref_room[kBlock];
  double cand_room[kBlock];
  const double* r = Doubles(ref, count, ref_room);
  const double* c = Doubles(cand, count, cand_room);
  const DoubleBlock block = CompareDoubles(r, c, count, element_scale);
  if (block.finite()) {
    Add(block, sums);
  } else {
    CompareCarefully(r, c, count, element_scale, sums);
  }
}

}  // namespace ttrace
