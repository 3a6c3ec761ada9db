#include "src/numeric/widen.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/numeric/fixed_vectors.h"
#include "src/numeric/widen_kernel.h"

namespace ttrace::widen_test {
namespace {

// The definition of binary16, by arithmetic.
double HalfByDefinition(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Widen, EveryHalfIsItsDefinition) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double want = HalfByDefinition(half);
    const auto got = static_cast<double>(WidenF16(half));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      EXPECT_EQ(got, want) << bits;
      EXPECT_EQ(std::signbit(got), std::signbit(want)) << bits;
    }
  }
}

TEST(Widen, BF16IsTheUpperHalfOfAFloat) {
  EXPECT_EQ(WidenBF16(0x3F80), 1.0F);
  EXPECT_EQ(WidenBF16(0xC049), -3.140625F);
  EXPECT_EQ(WidenBF16(0x0001), 0x1p-133F);
  EXPECT_TRUE(std::isinf(WidenBF16(0x7F80)));
}

template <typename T>
void ExpectWidens(DType dtype, const std::vector<T>& values) {
  std::vector<double> out(values.size());
  Widen(dtype, reinterpret_cast<const std::byte*>(values.data()), values.size(),
        out.data());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(out[i], static_cast<double>(values[i]));
  }
}

TEST(Widen, NumbersOfOtherDTypesKeepTheirValue) {
  ExpectWidens<uint8_t>(DType::kU8, {0, 1, 255});
  ExpectWidens<uint8_t>(DType::kBool, {0, 1});
  ExpectWidens<int8_t>(DType::kI8, {-128, 0, 127});
  ExpectWidens<int16_t>(DType::kI16, {-32768, 3, 32767});
  ExpectWidens<int32_t>(DType::kI32, {INT32_MIN, -1, INT32_MAX});
  ExpectWidens<int64_t>(DType::kI64, {-(int64_t{1} << 53), 7});
  ExpectWidens<float>(DType::kF32, {1e-45F, -3.5F});
  ExpectWidens<double>(DType::kF64, {1e-300, -3.5});
}

// Of p fraction bits behind an exponent of bias `bias`, by arithmetic.
double ByDefinition8(uint8_t bits, int p, int bias) {
  const int exponent = (bits & 0x7F) >> p;
  const int fraction = bits & ((1 << p) - 1);
  const double sign = (bits & 0x80) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - p);
  return sign * std::ldexp((1 << p) + fraction, exponent - bias - p);
}

TEST(Widen, EveryEightBitFloatIsItsDefinition) {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<uint8_t>(bits);
    const auto* p = reinterpret_cast<const std::byte*>(&byte);
    const double e4m3 = WidenElement(DType::kF8E4M3FN, p);
    if ((bits & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(e4m3));
    } else {
      EXPECT_EQ(e4m3, ByDefinition8(byte, 3, 7)) << bits;
      EXPECT_EQ(std::signbit(e4m3), bits >= 128) << bits;
    }
    const double e5m2 = WidenElement(DType::kF8E5M2, p);
    if ((bits & 0x7F) > 0x7C) {
      EXPECT_TRUE(std::isnan(e5m2));
    } else if ((bits & 0x7F) == 0x7C) {
      EXPECT_TRUE(std::isinf(e5m2));
    } else {
      EXPECT_EQ(e5m2, ByDefinition8(byte, 2, 15)) << bits;
    }
    EXPECT_EQ(std::signbit(e5m2), bits >= 128) << bits;
  }
}

// On every instruction set that this machine has.
class WidenKernel : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

void ExpectSameNumber(double got, double want, const std::string& what) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << what;
  } else {
    EXPECT_EQ(std::bit_cast<uint64_t>(got), std::bit_cast<uint64_t>(want))
        << what;
  }
}

// `count` elements of `dtype` at an odd address, and nothing behind them.
void ExpectElementwise(DType dtype, const std::vector<std::byte>& elements,
                       size_t count) {
  const auto size = static_cast<size_t>(Info(dtype).itemsize);
  const std::string what =
      std::string(Info(dtype).torch_name) + " of " + std::to_string(count);
  const double scale = 1.0 / 3;
  std::vector<double> value(count + 1, 7);
  std::vector<double> scaled(count + 1, 7);
  std::vector<double> sum(count + 1, 0.1);
  std::vector<std::byte> shifted(count * size + 1);
  if (count > 0) {
    std::memcpy(shifted.data() + 1, elements.data(), count * size);
  }
  Widen(dtype, shifted.data() + 1, count, value.data());
  WidenScaled(dtype, shifted.data() + 1, count, scale, scaled.data());
  AddWidened(dtype, shifted.data() + 1, count, scale, sum.data());
  for (size_t i = 0; i < count; ++i) {
    const double x = WidenElement(dtype, elements.data() + i * size);
    const volatile double product = x * scale;
    ExpectSameNumber(value[i], x, what);
    ExpectSameNumber(scaled[i], product, what);
    ExpectSameNumber(sum[i], 0.1 + product, what);
  }
  EXPECT_EQ(value[count], 7);
  EXPECT_EQ(scaled[count], 7);
  EXPECT_EQ(sum[count], 0.1);
}

TEST_P(WidenKernel, AllTailsOfAllDTypes) {
  std::mt19937 rng(1);
  for (int d = 0; d < kDTypeCount; ++d) {
    for (size_t count = 0; count < 70; ++count) {
      std::vector<std::byte> elements(8 * count);
      for (std::byte& byte : elements) byte = static_cast<std::byte>(rng());
      ExpectElementwise(static_cast<DType>(d), elements, count);
    }
  }
}

TEST_P(WidenKernel, EveryElementOf8And16Bits) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<std::byte> bytes(2 * all.size());
  std::memcpy(bytes.data(), all.data(), bytes.size());
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    // Of single bytes: all of them, in many places.
    if (Info(dtype).itemsize <= 2) ExpectElementwise(dtype, bytes, all.size());
  }
}

TEST_P(WidenKernel, EightBitFloatsKeepTheirPlaces) {
  std::vector<std::byte> bytes(1003);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i * 7);
  }
  for (size_t count = 0; count < bytes.size(); count += 51) {
    std::vector<uint16_t> wide(count + 1, 0x5A5A);
    WidenF8(DType::kF8E4M3FN, bytes.data(), count, wide.data());
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(wide[i], F8E4M3FNAsBF16(std::to_integer<uint8_t>(bytes[i])));
    }
    EXPECT_EQ(wide[count], 0x5A5A);
    WidenF8(DType::kF8E5M2, bytes.data(), count, wide.data());
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(wide[i], F8E5M2AsF16(std::to_integer<uint8_t>(bytes[i])));
    }
  }
}

TEST_P(WidenKernel, HalvesOfE4M3FNAre1Over256OfThem) {
  // With NaN in some runs and not in others.
  for (const size_t step : {size_t{1}, size_t{7}, size_t{16}}) {
    std::vector<std::byte> bytes(1003);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(i * step);
    }
    for (size_t count = 0; count < bytes.size(); count += 17) {
      std::vector<uint16_t> half(count + 1, 0x5A5A);
      HalvesOfE4M3FN(bytes.data(), count, half.data());
      for (size_t i = 0; i < count; ++i) {
        ExpectSameNumber(kE4M3FNOverHalf * double{WidenF16(half[i])},
                         WidenElement(DType::kF8E4M3FN, &bytes[i]),
                         std::to_string(i));
      }
      EXPECT_EQ(half[count], 0x5A5A);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets, WidenKernel,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

}  // namespace
}  // namespace ttrace::widen_test
