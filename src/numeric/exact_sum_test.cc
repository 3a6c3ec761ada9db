#include "src/numeric/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace ttrace::exact_sum_test {
namespace {

double SumOf(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.Add(value);
  return sum.Value();
}

TEST(ExactSum, ASingleDoubleComesBack) {
  using Limits = std::numeric_limits<double>;
  for (const double x : {0.0, 1.0, -1.0, 0.1, -1e300, 1e-300, Limits::max(),
                         -Limits::max(), Limits::min(), Limits::denorm_min(),
                         -Limits::denorm_min(), 0x1.fffffffffffffp-1022}) {
    EXPECT_EQ(SumOf({x}), x);
  }
}

TEST(ExactSum, NothingIsLostToCancellation) {
  EXPECT_EQ(SumOf({1e300, 1.0, -1e300}), 1.0);
  EXPECT_EQ(SumOf({1e300, 1e-300, -1e300}), 1e-300);
  EXPECT_EQ(SumOf({-1.0, 0x1p-1074, 1.0}), 0x1p-1074);
}

TEST(ExactSum, IsRoundedOnceToNearestEven) {
  EXPECT_EQ(SumOf({1.0, 0x1p-53}), 1.0);  // a tie
  EXPECT_EQ(SumOf({1.0, 0x1p-53, 0x1p-1074}), 1.0 + 0x1p-52);
  EXPECT_EQ(SumOf({1.0 + 0x1p-52, 0x1p-53}), 1.0 + 0x1p-51);
  EXPECT_EQ(SumOf({-1.0, -0x1p-53, -0x1p-1074}), -1.0 - 0x1p-52);
}

TEST(ExactSum, DoesNotDependOnOrderOrGrouping) {
  std::mt19937 rng(3);
  std::uniform_int_distribution<int> exponent(-300, 300);
  std::normal_distribution<double> normal;
  std::vector<double> values(1000);
  for (double& value : values) value = std::ldexp(normal(rng), exponent(rng));
  const double want = SumOf(values);
  for (int round = 0; round < 10; ++round) {
    std::shuffle(values.begin(), values.end(), rng);
    EXPECT_EQ(SumOf(values), want);
    ExactSum parts[3];
    for (size_t i = 0; i < values.size(); ++i) parts[i % 3].Add(values[i]);
    parts[1].Merge(parts[2]);
    parts[0].Merge(parts[1]);
    EXPECT_EQ(parts[0].Value(), want);
  }
}

TEST(ExactSum, OfIntegersIsExact) {
  ExactSum sum;
  int64_t want = 0;
  std::mt19937_64 rng(4);
  for (int i = 0; i < 10000; ++i) {
    const auto x = static_cast<int64_t>(rng() >> 24) - (int64_t{1} << 39);
    want += x;
    sum.Add(static_cast<double>(x));
  }
  EXPECT_EQ(sum.Value(), static_cast<double>(want));
}

TEST(ExactSum, TakenApartAndPutTogetherIsTheSame) {
  std::mt19937 rng(5);
  std::uniform_int_distribution<int> exponent(-1070, 1000);
  std::normal_distribution<double> normal;
  for (int count : {0, 1, 2, 10, 1000}) {
    for (int round = 0; round < 20; ++round) {
      ExactSum sum;
      for (int i = 0; i < count; ++i) {
        sum.Add(std::ldexp(normal(rng), exponent(rng)));
      }
      const ExactSum::Parts parts = sum.TakeApart();
      ExactSum again = ExactSum::PutTogether(parts).value();
      EXPECT_EQ(again.Value(), sum.Value());
      EXPECT_EQ(again.TakeApart().digits, parts.digits);
      // Not only what is seen of it.
      const double head = sum.Value();
      sum.Add(-head);
      again.Add(-head);
      EXPECT_EQ(again.Value(), sum.Value());
    }
  }
  ExactSum infinite;
  infinite.Add(std::numeric_limits<double>::infinity());
  EXPECT_EQ(ExactSum::PutTogether(infinite.TakeApart())->Value(),
            std::numeric_limits<double>::infinity());
}

TEST(ExactSum, OfPartsThatNoSumHasIsNothing) {
  ExactSum::Parts parts;
  parts.first = 69;
  EXPECT_FALSE(ExactSum::PutTogether(parts));
  parts.first = 60;
  parts.digits.assign(9, 1);
  EXPECT_FALSE(ExactSum::PutTogether(parts));
  parts.digits.pop_back();
  EXPECT_TRUE(ExactSum::PutTogether(parts));
}

TEST(ExactSum, OverflowAndNonFiniteAddendsShow) {
  constexpr double kMax = std::numeric_limits<double>::max();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(SumOf({kMax, kMax}), kInf);
  EXPECT_EQ(SumOf({kMax, kMax, -kMax}), kMax);
  EXPECT_EQ(SumOf({1.0, kInf}), kInf);
  EXPECT_TRUE(std::isnan(SumOf({kInf, -kInf, 1.0})));
}

}  // namespace
}  // namespace ttrace::exact_sum_test
