#include "src/numeric/widen.h"

#include <algorithm>

#include "src/numeric/widen_kernel.h"

// Built with -ffp-contract=off, as the kernel is.

namespace ttrace {
namespace {

// Elements that go through the first-level cache at once.
constexpr size_t kChunk = 512;
// Fewer elements than this are not worth a vector: columns are rows of one.
constexpr size_t kFew = 8;

// The dtype is a template argument: a switch per element would cost more than
// the conversion.
template <DType kDType>
void WidenIntegers(const std::byte* in, size_t count, double* out) {
  constexpr auto kItemsize = static_cast<size_t>(Info(kDType).itemsize);
  for (size_t i = 0; i < count; ++i) {
    out[i] = WidenElement(kDType, in + i * kItemsize);
  }
}

void WidenIntegers(DType dtype, const std::byte* in, size_t count,
                   double* out) {
  switch (dtype) {
    case DType::kBool:
      return WidenIntegers<DType::kBool>(in, count, out);
    case DType::kU8:
      return WidenIntegers<DType::kU8>(in, count, out);
    case DType::kI8:
      return WidenIntegers<DType::kI8>(in, count, out);
    case DType::kI16:
      return WidenIntegers<DType::kI16>(in, count, out);
    case DType::kI32:
      return WidenIntegers<DType::kI32>(in, count, out);
    default:
      return WidenIntegers<DType::kI64>(in, count, out);
  }
}

void WidenFew(WidenTo to, DType dtype, const std::byte* in, size_t count,
              double scale, double* out) {
  const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
  for (size_t i = 0; i < count; ++i) {
    const double x = WidenElement(dtype, in + i * itemsize) * scale;
    out[i] = to == WidenTo::kSum ? out[i] + x : x;
  }
}

void WidenAny(WidenTo to, DType dtype, const std::byte* in, size_t count,
              double scale, double* out) {
  if (count < kFew) return WidenFew(to, dtype, in, count, scale, out);
  const DTypeInfo info = Info(dtype);
  if (info.floating && info.itemsize > 1) {
    return WidenFloats(to, dtype, in, count, scale, out);
  }
  const auto itemsize = static_cast<size_t>(info.itemsize);
  for (size_t i = 0; i < count; i += kChunk) {
    const size_t n = std::min(kChunk, count - i);
    if (info.floating) {
      uint16_t wider[kChunk];
      WidenF8(dtype, in + i, n, wider);
      WidenFloats(to, WiderF8(dtype), reinterpret_cast<std::byte*>(wider), n,
                  scale, out + i);
    } else if (to == WidenTo::kValue) {
      WidenIntegers(dtype, in + i * itemsize, n, out + i);
    } else {
      double values[kChunk];
      WidenIntegers(dtype, in + i * itemsize, n, values);
      WidenFloats(to, DType::kF64, reinterpret_cast<std::byte*>(values), n,
                  scale, out + i);
    }
  }
}

}  // namespace

void Widen(DType dtype, const std::byte* in, size_t count, double* out) {
  WidenAny(WidenTo::kValue, dtype, in, count, 1, out);
}

void WidenScaled(DType dtype, const std::byte* in, size_t count, double scale,
                 double* out) {
  WidenAny(scale == 1 ? WidenTo::kValue : WidenTo::kScaled, dtype, in, count,
           scale, out);
}

void AddWidened(DType dtype, const std::byte* in, size_t count, double weight,
                double* sum) {
  WidenAny(WidenTo::kSum, dtype, in, count, weight, sum);
}

void WidenF8(DType dtype, const std::byte* in, size_t count, uint16_t* out) {
  if (dtype == DType::kF8E4M3FN) return WidenE4M3FN(in, count, out);
  WidenE5M2(in, count, out);
}

}  // namespace ttrace
