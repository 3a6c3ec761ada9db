// Element types that training frameworks write, and their rounding properties.
//
// Thread safety: everything here is constexpr.

#ifndef TTRACE_DTYPE_H_
#define TTRACE_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace ttrace {

enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kF8E4M3FN,  // no infinities, one NaN of each sign
  kF8E5M2,    // the upper half of an F16
};
inline constexpr int kDTypeCount = 12;

struct DTypeInfo {
  std::string_view torch_name;        // as str(torch.dtype) without "torch."
  std::string_view safetensors_name;  // as a safetensors header spells it
  int itemsize;                       // bytes per element
  bool floating;
  int precision;  // significand bits, counting the implicit one; 0: exact
};

constexpr DTypeInfo Info(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return {"bool", "BOOL", 1, false, 0};
    case DType::kU8:
      return {"uint8", "U8", 1, false, 0};
    case DType::kI8:
      return {"int8", "I8", 1, false, 0};
    case DType::kI16:
      return {"int16", "I16", 2, false, 0};
    case DType::kI32:
      return {"int32", "I32", 4, false, 0};
    case DType::kI64:
      return {"int64", "I64", 8, false, 0};
    case DType::kF16:
      return {"float16", "F16", 2, true, 11};
    case DType::kBF16:
      return {"bfloat16", "BF16", 2, true, 8};
    case DType::kF32:
      return {"float32", "F32", 4, true, 24};
    case DType::kF64:
      return {"float64", "F64", 8, true, 53};
    case DType::kF8E4M3FN:
      return {"float8_e4m3fn", "F8_E4M3", 1, true, 4};
    case DType::kF8E5M2:
      return {"float8_e5m2", "F8_E5M2", 1, true, 3};
  }
  return {"invalid", "invalid", 0, false, 0};
}

// The dtype that torch or safetensors calls `name`, or nothing.
constexpr std::optional<DType> ParseDType(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const DTypeInfo info = Info(dtype);
    if (info.torch_name == name || info.safetensors_name == name) return dtype;
  }
  return std::nullopt;
}

// u = 2^-p, the unit round-off: round-to-nearest gives fl(x) = x(1 + d) with
// |d| <= u while x stays in the normal range. Note that u is *half* of the
// machine epsilon that torch.finfo(dtype).eps reports. 0 for integers and bool.
constexpr double UnitRoundoff(DType dtype) {
  const DTypeInfo info = Info(dtype);
  if (!info.floating) return 0;
  double u = 1.0;
  for (int i = 0; i < info.precision; ++i) u /= 2;
  return u;
}

}  // namespace ttrace

#endif  // TTRACE_DTYPE_H_
