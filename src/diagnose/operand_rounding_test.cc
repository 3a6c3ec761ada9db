#include "src/diagnose/operand_rounding.h"

#include <gtest/gtest.h>

#include <random>

namespace ttrace::operand_rounding_test {
namespace {

constexpr size_t kRows = 16;
constexpr size_t kColumns = 12;
constexpr size_t kInner = 48;

std::vector<double> Random(unsigned seed, size_t count) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(rng);
  return values;
}

Operands Plain() {
  return {kRows, kColumns, kInner, Random(1, kRows * kInner),
          Random(2, kColumns * kInner)};
}

// What comes out, with a bias, of operands rounded like this; 0: left alone.
std::vector<double> Made(int bits, double left, double right) {
  Operands o = Plain();
  const auto round = [&](double scale, std::vector<double>* values) {
    if (scale == 0) return;
    for (double& value : *values) value = RoundedTo(value, bits, scale);
  };
  round(left, &o.left);
  round(right, &o.right);
  std::vector<double> out;
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t c = 0; c < kColumns; ++c) {
      double sum = static_cast<double>(c);
      for (size_t k = 0; k < kInner; ++k) {
        sum += o.left[r * kInner + k] * o.right[c * kInner + k];
      }
      out.push_back(sum);
    }
  }
  return out;
}

TEST(RoundedTo, KeepsSignificantBitsOfAScaledValue) {
  EXPECT_EQ(RoundedTo(0, 4, 1.3), 0);
  EXPECT_EQ(RoundedTo(15, 4, 1), 15);
  EXPECT_EQ(RoundedTo(-17.5, 4, 1), -18);
  EXPECT_EQ(RoundedTo(31.5, 4, 1), 32);
  EXPECT_EQ(RoundedTo(45, 4, 3), 45);
  EXPECT_EQ(RoundedTo(0x1.01p0, 8, 1), 1);
}

TEST(FitRounding, FindsBitsAndScales) {
  for (const int bits : {4, 3}) {
    const OperandRounding found =
        FitRounding(Plain(), Made(bits, 1.3717, 1.0421));
    EXPECT_EQ(found.bits, bits);
    EXPECT_NEAR(found.left_scale, 1.3717, 1e-3);
    EXPECT_NEAR(found.right_scale, 1.0421, 1e-3);
  }
}

TEST(FitRounding, OfOneOperandAlone) {
  const OperandRounding left = FitRounding(Plain(), Made(4, 1.6, 0));
  EXPECT_EQ(left.bits, 4);
  EXPECT_NEAR(left.left_scale, 1.6, 1e-3);
  EXPECT_EQ(left.right_scale, 0);
  const OperandRounding right = FitRounding(Plain(), Made(8, 0, 1));
  EXPECT_EQ(right.bits, 8);
  EXPECT_EQ(right.left_scale, 0);
  EXPECT_EQ(right.right_scale, 1);
}

TEST(FitRounding, FindsNothingWhereNothingWasRounded) {
  const auto plain = Made(1, 0, 0);
  const OperandRounding exact = FitRounding(Plain(), plain);
  EXPECT_EQ(exact.bits, 0);
  ASSERT_EQ(exact.product.size(), plain.size());
  EXPECT_NEAR(exact.product[kColumns], plain[kColumns], 1e-12);
  // Errors of all sizes that are no rounding's.
  const auto other = Random(3, plain.size());
  for (double size = 1e-4; size < 10; size *= 1.5) {
    auto wrong = plain;
    for (size_t i = 0; i < wrong.size(); ++i) wrong[i] += size * other[i];
    EXPECT_EQ(FitRounding(Plain(), wrong).bits, 0) << size;
  }
  // A bias is none.
  EXPECT_EQ(FitRounding(Plain(), std::vector<double>(plain.size(), 0)).bits, 0);
}

}  // namespace
}  // namespace ttrace::operand_rounding_test
