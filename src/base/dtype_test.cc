#include "ttrace/dtype.h"

#include <gtest/gtest.h>

namespace ttrace::dtype_test {
namespace {

TEST(DType, BothSpellingsParse) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(ParseDType(Info(dtype).torch_name), dtype);
    EXPECT_EQ(ParseDType(Info(dtype).safetensors_name), dtype);
    EXPECT_GT(Info(dtype).itemsize, 0);
  }
  EXPECT_FALSE(ParseDType("invalid"));
  EXPECT_FALSE(ParseDType(""));
}

TEST(DType, UnitRoundoffIsHalfOfTheMachineEpsilon) {
  EXPECT_EQ(UnitRoundoff(DType::kF64), 0x1p-53);
  EXPECT_EQ(UnitRoundoff(DType::kF32), 0x1p-24);
  EXPECT_EQ(UnitRoundoff(DType::kF16), 0x1p-11);
  EXPECT_EQ(UnitRoundoff(DType::kBF16), 0x1p-8);
  EXPECT_EQ(UnitRoundoff(DType::kF8E4M3FN), 0x1p-4);
  EXPECT_EQ(UnitRoundoff(DType::kF8E5M2), 0x1p-3);
  EXPECT_EQ(UnitRoundoff(DType::kI64), 0);
}

}  // namespace
}  // namespace ttrace::dtype_test
