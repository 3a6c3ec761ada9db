#include "src/judge/norm_terms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace ttrace::norm_terms_test {
namespace {

// Two layers, cut along tp but for biases.
ReportedNorm Norm() {
  ReportedNorm out;
  out.terms = {{"layers.0.bias", 1.0, {}},
               {"layers.0.weight", 5.0, {{"tp", {2.0, 3.0}}}},
               {"layers.1.bias", 1.7, {}},
               {"layers.1.weight", 11.0, {{"tp", {7.0, 4.0}}}}};
  return out;
}

std::optional<NormExplanation> Explained(double square, double bound = 1e-6) {
  ReportedNorm norm = Norm();
  norm.reported = std::sqrt(square);
  return ExplainNorm(norm, bound);
}

constexpr double kTotal = 18.7;

TEST(ExplainNorm, OneParameter) {
  const auto found = Explained(kTotal - 5);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->whose, "layers.0.weight");
  EXPECT_EQ(found->weight, 0);
  EXPECT_EQ(found->count, 1);
  EXPECT_EQ(found->coordinate, -1);
}

TEST(ExplainNorm, OneNameInAllLayersCountedTwice) {
  const auto found = Explained(kTotal + 2.7);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->count, 2);
  EXPECT_EQ(found->weight, 2);
  EXPECT_EQ(found->whose.find("layers.0"), std::string::npos);
}

TEST(ExplainNorm, WhatIsCutCountsOnOneRankOnly) {
  const auto found = Explained(2.7 + 7 + 2);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->whose, "tp");
  EXPECT_EQ(found->coordinate, 0);
  EXPECT_EQ(found->count, 2);
}

TEST(ExplainNorm, NothingElseIsNamed) {
  EXPECT_FALSE(Explained(kTotal + 0.4));
  EXPECT_FALSE(Explained(std::numeric_limits<double>::infinity()));
}

// One of many that would do is no explanation where the norm is off by little
// more than its bound.
TEST(ExplainNorm, WhatMayBeChanceIsNotNamed) {
  ReportedNorm norm;
  for (int i = 0; i < 40; ++i) {
    norm.terms.push_back(
        {"layers." + std::to_string(i) + ".bias", 1e-5 * (i + 10), {}});
  }
  norm.terms.push_back({"weight", 10.0, {}});
  double total = 0;
  for (const NormTerm& term : norm.terms) total += term.square;
  norm.reported = std::sqrt(total - 20e-5);
  EXPECT_TRUE(ExplainNorm(norm, 1e-9));
  // Still the only one within the bound.
  EXPECT_FALSE(ExplainNorm(norm, 4e-7));
}

// A bound that admits several explanations admits none.
TEST(ExplainNorm, SeveralAreNone) {
  EXPECT_TRUE(Explained(kTotal - 1.0));
  EXPECT_FALSE(Explained(kTotal - 1.0, 0.03));
}

}  // namespace
}  // namespace ttrace::norm_terms_test
