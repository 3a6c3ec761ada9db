#include "src/numeric/widen.h"

namespace ttrace {
namespace {

// The dtype is a template argument: a switch per element would cost more than
// the conversion.
template <DType kDType>
void WidenAll(const std::byte* in, size_t count, double* out) {
  constexpr auto kItemsize = static_cast<size_t>(Info(kDType).itemsize);
  for (size_t i = 0; i < count; ++i) {
    out[i] = WidenElement(kDType, in + i * kItemsize);
  }
}

}  // namespace

void Widen(DType dtype, const std::byte* in, size_t count, double* out) {
  switch (dtype) {
    case DType::kBool:
      return WidenAll<DType::kBool>(in, count, out);
    case DType::kU8:
      return WidenAll<DType::kU8>(in, count, out);
    case DType::kI8:
      return WidenAll<DType::kI8>(in, count, out);
    case DType::kI16:
      return WidenAll<DType::kI16>(in, count, out);
    case DType::kI32:
      return WidenAll<DType::kI32>(in, count, out);
    case DType::kI64:
      return WidenAll<DType::kI64>(in, count, out);
    case DType::kF16:
      return WidenAll<DType::kF16>(in, count, out);
    case DType::kBF16:
      return WidenAll<DType::kBF16>(in, count, out);
    case DType::kF32:
      return WidenAll<DType::kF32>(in, count, out);
    case DType::kF64:
      return WidenAll<DType::kF64>(in, count, out);
  }
}

}  // namespace ttrace
