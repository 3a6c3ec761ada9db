// The arithmetic under the rules: samples, fits, names of factors, slices.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "src/compare/sample.h"
#include "src/diagnose/decomposition.h"
#include "src/diagnose/slices.h"
#include "src/diagnose/testing/evidence_lab.h"
#include "src/diagnose/token_counts.h"
#include "src/diagnose/topology_factors.h"

namespace ttrace::units_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Sample, IsWholeWhereItFitsAndBoundedAndSpreadWhereNot) {
  EXPECT_EQ(PlanSample({12, 8, 16}, 1536).size(), 1u);
  for (const Shape& shape :
       {Shape{12, 8, 16}, Shape{1, 1000, 7}, Shape{5000}, Shape{3, 2, 4096}}) {
    const auto boxes = PlanSample(shape, 200);
    int64_t total = 0;
    int64_t last = 0;
    for (const SampledBox& box : boxes) {
      int64_t count = 1;
      for (size_t d = 0; d < shape.size(); ++d) {
        EXPECT_LE(box.begin[d] + box.size[d], shape[d]);
        count *= box.size[d];
      }
      total += count;
      last = std::max(last, box.begin[0] + box.size[0]);
    }
    EXPECT_LE(total, 200);
    EXPECT_GE(total, 50);
    EXPECT_GT(last, shape[0] / 2);
  }
  EXPECT_THAT(PlanSample({4, 0}, 10), IsEmpty());
}

TEST(Sample, ReadsWhatLiesAtItsPlaces) {
  const std::vector<double> values = RandomIntegers(1);
  Sharding sharded = Parts(2, 2);
  const ShardedTrace trace(kShape, values, sharded);
  const auto boxes = PlanSample(kShape, 100);
  const auto read = OrDie(ReadSample(trace.pieces(), boxes));
  for (size_t i = 0; i < read.size(); ++i) {
    const Shape at = PlaceInSample(boxes, i);
    const int64_t index = (at[0] * kShape[1] + at[1]) * kShape[2] + at[2];
    ASSERT_EQ(read[i], values[static_cast<size_t>(index)]);
  }
}

TEST(Sample, ARanksTermOfASumIsAValue) {
  Sharding partial = Copies(2);
  partial.placements = {{"tp", Partial{}}};
  const ShardedTrace trace(kShape, std::vector<double>(kCount, 5), partial);
  const RankPieces first(trace.pieces(), 0);
  const RankPieces second(trace.pieces(), 1);
  const auto a = OrDie(ReadBox(first.pieces(), {0, 0, 0}, {1, 1, 1}));
  const auto b = OrDie(ReadBox(second.pieces(), {0, 0, 0}, {1, 1, 1}));
  EXPECT_NE(a[0], 5);
  EXPECT_EQ(a[0] + b[0], 5);
  EXPECT_TRUE(RankPieces(trace.pieces(), 7).empty());
}

TEST(Decompose, FindsTheWeightsAndHowSureTheyAre) {
  const auto a = RandomValues(1, 500);
  auto b = RandomValues(2, 500);
  for (size_t i = 0; i < b.size(); ++i)
    b[i] += a[i];  // alike, as gradients are
  std::vector<double> target;
  for (size_t i = 0; i < a.size(); ++i) target.push_back(2 * a[i]);
  const auto fit = Decompose({a, b}, Noisy(target, 1e-3), 1e-3);
  ASSERT_TRUE(fit.has_value());
  EXPECT_NEAR(fit->weights[0], 2, fit->uncertainty[0]);
  EXPECT_NEAR(fit->weights[1], 0, fit->uncertainty[1]);
  EXPECT_LT(fit->worst_uncertainty(), 0.05);
  EXPECT_LT(fit->residual, 1e-3);
  EXPECT_TRUE(fit->whole());
}

TEST(Decompose, IsUnsureWhereNoiseIsAsLargeAsTheDifferenceOfTheTerms) {
  const auto a = RandomValues(1, 500);
  auto b = RandomValues(2, 500);
  for (size_t i = 0; i < b.size(); ++i) b[i] = a[i] + 0.1 * b[i];
  const auto fit = Decompose({a, b}, a, 0.05);
  ASSERT_TRUE(fit.has_value());
  EXPECT_GT(fit->worst_uncertainty(), 0.25);
  EXPECT_FALSE(fit->whole());
}

TEST(Decompose, RefusesWhatHasNoAnswer) {
  const auto a = RandomValues(1, 50);
  EXPECT_FALSE(Decompose({}, a, 0).has_value());
  EXPECT_FALSE(Decompose({a, a}, a, 1e-3).has_value());
  EXPECT_FALSE(Decompose({a}, std::vector<double>(50, 0), 0).has_value());
  EXPECT_FALSE(Decompose({std::vector<double>(49, 1)}, a, 0).has_value());
  EXPECT_FALSE(Decompose({std::vector<double>(50, NAN)}, a, 0).has_value());
}

TEST(NamesOfFactor, NamesTheSimplestAndTheExpectedFirst) {
  const std::vector<RunSize> sizes = {
      {"dp", 2, true}, {"tp", 2, false}, {"cp", 4, false}, {"one", 1, true}};
  EXPECT_THAT(NamesOfFactor(2, sizes, 1e-3), ElementsAre("dp = 2"));
  EXPECT_THAT(NamesOfFactor(0.5, sizes, 1e-3), ElementsAre("1 / (dp = 2)"));
  EXPECT_THAT(NamesOfFactor(0.25, sizes, 1e-3), ElementsAre("1 / (dp = 2)^2"));
  EXPECT_THAT(NamesOfFactor(16, sizes, 1e-3), ElementsAre("(cp = 4)^2"));
  EXPECT_THAT(NamesOfFactor(8, sizes, 1e-3),
              ElementsAre("dp = 2 x cp = 4", "tp = 2 x cp = 4"));
  EXPECT_THAT(NamesOfFactor(1.37, sizes, 1e-2), IsEmpty());
  EXPECT_THAT(NamesOfFactor(1.0001, {{"cp", 2, true}, {"dp", 4, true}}, 1e-3),
              IsEmpty());
  EXPECT_THAT(NamesOfFactor(2.01, sizes, 1e-3), IsEmpty());
}

constexpr int64_t kSlices = 12;
constexpr int64_t kWidth = 16;

std::vector<double> Moved(const std::vector<double>& from,
                          const std::vector<int64_t>& source) {
  std::vector<double> out;
  for (const int64_t s : source) {
    out.insert(out.end(), from.begin() + s * kWidth,
               from.begin() + (s + 1) * kWidth);
  }
  return out;
}

TEST(MatchSlices, ASwapIsABijectionAndACopyIsNot) {
  const auto ref = RandomValues(3, kSlices * kWidth);
  const auto swapped = Moved(ref, {6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5});
  auto match = MatchSlices(ref, Noisy(swapped, 1e-3), kSlices, kWidth, 2e-3);
  EXPECT_EQ(match.wrong.size(), 12u);
  EXPECT_EQ(match.matched, 12);
  EXPECT_TRUE(match.bijection);
  const auto runs = MovedRuns(match);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].from, 6);
  EXPECT_EQ(runs[0].length, 6);

  const auto copied = Moved(ref, {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
  match = MatchSlices(ref, Noisy(copied, 1e-3), kSlices, kWidth, 2e-3);
  EXPECT_EQ(match.wrong.size(), 6u);
  EXPECT_EQ(match.matched, 6);
  EXPECT_FALSE(match.bijection);
}

TEST(MatchSlices, EqualSlicesOfTheReferenceStandForEachOther) {
  auto ref = RandomValues(3, kSlices * kWidth);
  // Slices 0 and 1 are the same token; 0 and 5, 1 and 6 are swapped.
  std::copy(ref.begin(), ref.begin() + kWidth, ref.begin() + kWidth);
  const auto moved = Moved(ref, {5, 6, 2, 3, 4, 0, 1, 7, 8, 9, 10, 11});
  const auto match = MatchSlices(ref, moved, kSlices, kWidth, 1e-6);
  EXPECT_EQ(match.matched, 4);
  EXPECT_TRUE(match.bijection);
}

TEST(MatchSlices, ZerosMayTakePartInABijection) {
  auto ref = RandomValues(3, kSlices * kWidth);
  // Slices 2 and 3: masked tokens, whose gradients are 0.
  std::fill(ref.begin() + 2 * kWidth, ref.begin() + 4 * kWidth, 0);
  auto moved = Moved(ref, {2, 1, 0, 4, 3, 5, 6, 7, 8, 9, 10, 11});
  auto match = MatchSlices(ref, Noisy(moved, 1e-3), kSlices, kWidth, 2e-3);
  EXPECT_THAT(match.wrong, ElementsAre(2, 3));
  EXPECT_THAT(match.source, ElementsAre(0, 4));
  EXPECT_TRUE(match.bijection);
  // One that is there twice in place of zeros, and one that is lost.
  moved = Moved(ref, {0, 1, 0, 2, 4, 5, 6, 7, 8, 9, 10, 11});
  match = MatchSlices(ref, Noisy(moved, 1e-3), kSlices, kWidth, 2e-3);
  EXPECT_THAT(match.source, ElementsAre(0));
  EXPECT_FALSE(match.bijection);
  moved = Moved(ref, {1, 0, 2, 3, 2, 5, 6, 7, 8, 9, 10, 11});
  match = MatchSlices(ref, Noisy(moved, 1e-3), kSlices, kWidth, 2e-3);
  EXPECT_THAT(match.source, ElementsAre(1, 0));
  EXPECT_FALSE(match.bijection);
}

// Two values that may each be off by a fifth are not told apart from others.
TEST(MatchSlices, FewValuesNeedANarrowBound) {
  const auto ref = RandomValues(30, 64);
  std::vector<double> swapped = ref;
  std::swap_ranges(swapped.begin(), swapped.begin() + 2, swapped.begin() + 40);
  EXPECT_EQ(MatchSlices(ref, swapped, 32, 2, 1e-6).matched, 2);
  EXPECT_TRUE(MatchSlices(ref, swapped, 64, 1, 1e-6).bijection);
  EXPECT_EQ(MatchSlices(ref, swapped, 32, 2, 0.05).matched, 0);
}

TEST(MatchSlices, MatchesNeitherNoiseNorZerosNorStrangers) {
  const auto ref = RandomValues(3, kSlices * kWidth);
  EXPECT_TRUE(
      MatchSlices(ref, Noisy(ref, 1e-3), kSlices, kWidth, 1e-3).wrong.empty());
  const auto other = RandomValues(4, kSlices * kWidth);
  EXPECT_EQ(MatchSlices(ref, other, kSlices, kWidth, 0.1).matched, 0);
  const std::vector<double> zeros(ref.size(), 0);
  EXPECT_TRUE(MatchSlices(ref, zeros, kSlices, kWidth, 1e-3).wrong.empty());
  // Twice as far from the other slice as the bound lets it be.
  auto near = Moved(ref, {1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  near = Noisy(near, 0.2);
  EXPECT_EQ(MatchSlices(ref, near, kSlices, kWidth, 1e-2).matched, 0);
  // Slices too narrow to be told apart.
  EXPECT_EQ(MatchSlices({1, 2}, {2, 1}, 2, 1, 1e-3).matched, 0);
}

TEST(ExplainByTokens, NeedsOneNumberForAllMicroBatches) {
  const std::map<int, double> tokens = {{0, 10}, {1, 20}, {2, 40}};
  EXPECT_THAT(ExplainByTokens({{0, 2.0}, {1, 1.0}, {2, 0.5}}, tokens, 1e-3),
              HasSubstr("inverse proportion"));
  EXPECT_THAT(ExplainByTokens({{0, 0.5}, {1, 1.0}, {2, 2.0}}, tokens, 1e-3),
              HasSubstr("in proportion"));
  EXPECT_EQ(ExplainByTokens({{0, 2.0}, {1, 1.0}, {2, 0.6}}, tokens, 1e-3), "");
  EXPECT_EQ(ExplainByTokens({{0, 2.0}, {3, 1.0}}, tokens, 1e-3), "");
  // A common factor of micro-batches of one size is nothing about their sizes.
  EXPECT_EQ(ExplainByTokens({{0, 2.0}, {1, 2.0}}, {{0, 10}, {1, 10}}, 1e-3),
            "");
}

}  // namespace
}  // namespace ttrace::units_test
