// The rules where values were not kept: what they say of samples, and where
// these are too small to say anything.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "src/compare/summaries/value_sample.h"
#include "src/diagnose/testing/evidence_lab.h"

namespace ttrace::kept_sample_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr double kNoise = 1e-3;
constexpr double kBound = 2e-3;
constexpr size_t kBuckets = 256;

const Shape kLarge = {64, 8, 64};
constexpr size_t kElements = 64 * 8 * 64;
const TensorId kOutput = Id("layer", Role::kOutput);
const TensorId kReduced = Id("fc.weight", Role::kGradReduced);

std::vector<double> Truth() { return RandomValues(5, kElements); }

Damage OnRank(int rank, double factor) {
  return [=](Piece* piece) {
    if (piece->rank != rank) return true;
    for (double& value : piece->values) value *= factor;
    return true;
  };
}

// Both sides have summaries.
Lab Summarized(const std::vector<double>& candidate,
               const Sharding& sharding = kWhole,
               const Damage& damage = nullptr, size_t buckets = kBuckets,
               const TensorId& id = kOutput) {
  Lab lab(id, kBound);
  lab.summarized = buckets;
  lab.Reference(id, kLarge, Truth());
  lab.Candidate(id, kLarge, Noisy(candidate, kNoise), sharding, damage);
  return lab;
}

TEST(OfSamples, RulesSaySomethingOnlyAboutWhatTheyKnow) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    const auto other = RandomValues(100 + seed, kElements);
    EXPECT_EQ(Summarized(other).Letters(), "") << seed;
    for (const double share : {1.0, 0.3, 0.01}) {
      std::vector<double> off = Truth();
      for (size_t i = 0; i < off.size(); ++i) off[i] += share * other[i];
      EXPECT_EQ(Summarized(off).Letters(), "") << seed;
      EXPECT_EQ(Summarized(off, TwoByTwo()).Letters(), "") << seed;
      EXPECT_EQ(Summarized(off, Parts(2, 2)).Letters(), "") << seed;
    }
  }
}

TEST(OfSamples, AFactorIsFoundInOneRanksPart) {
  Lab lab = Summarized(Truth(), Parts(2, 2), OnRank(1, 2));
  EXPECT_THAT(lab.First(), StartsWith("K: it is 2"));
  EXPECT_THAT(lab.First(), HasSubstr("on rank 1, and right elsewhere"));
  EXPECT_THAT(lab.First(), HasSubstr("the sample of 256 elements"));
  // Values on one side are enough.
  Lab one(kOutput, kBound);
  one.Reference(kOutput, kLarge, Truth());
  one.summarized = kBuckets;
  one.Candidate(kOutput, kLarge, Noisy(Truth(), kNoise), Parts(2, 2),
                OnRank(1, 2));
  EXPECT_THAT(one.First(), HasSubstr("on rank 1, and right elsewhere"));
}

TEST(OfSamples, AFactorIsNotBelievedWhereASketchContradictsIt) {
  // Twice the reference where the sample is, and a stranger elsewhere.
  const SampleGrid grid(kLarge);
  std::vector<double> candidate = RandomValues(8, kElements);
  const std::vector<double> truth = Truth();
  for (int64_t i = 0; i < grid.count(); ++i) {
    const Shape at = grid.at(i);
    const auto index = static_cast<size_t>((at[0] * 8 + at[1]) * 64 + at[2]);
    candidate[index] = 2 * truth[index];
  }
  EXPECT_EQ(Summarized(candidate).Letters(), "");
}

TEST(OfSamples, PartsWithFewElementsOfItAreNotScaled) {
  // 64 micro-batches and ranks have four elements of the sample each.
  Sharding s;
  s.mesh.dims = {{"dp", 1}, {"tp", 8}};
  s.placements = {{"tp", Shard{2}}};
  s.batch_dim = 1;
  s.micro_batches = {{1, 1, 1, 1, 1, 1, 1, 1}};
  const Damage damage = OnRank(3, 2);
  Lab values(kOutput, kBound);
  values.Reference(kOutput, kLarge, Truth());
  values.Candidate(kOutput, kLarge, Noisy(Truth(), kNoise), s, damage);
  EXPECT_THAT(values.First(), HasSubstr("on rank 3, and right elsewhere"));
  EXPECT_EQ(Summarized(Truth(), s, damage, 16).Letters(), "");
  // Nor is what surrounds them, where these are something else.
  s.micro_batches = {{7, 1}};
  const Damage others = [](Piece* piece) {
    if (piece->micro_batch == 1) {
      piece->values = RandomValues(50u + static_cast<unsigned>(piece->rank),
                                   piece->values.size());
    } else {
      for (double& value : piece->values) value *= 2;
    }
    return true;
  };
  EXPECT_EQ(Summarized(Truth(), s, others, 16).Letters(), "");
}

TEST(OfSamples, ZerosAreMissing) {
  std::vector<double> candidate = Truth();
  std::fill(candidate.begin(), candidate.begin() + kElements / 2, 0.0);
  Lab lab = Summarized(candidate);
  EXPECT_THAT(lab.First(), StartsWith("M: all 1"));
  EXPECT_THAT(lab.First(), HasSubstr("the sample of 256 elements"));
}

TEST(OfSamples, ACoarserGridIsSeen) {
  std::vector<double> candidate = Truth();
  for (double& value : candidate) {
    int exponent = 0;
    const double mantissa = std::frexp(value, &exponent);
    value = std::ldexp(std::round(mantissa * 16) / 16, exponent);
  }
  Lab lab(kOutput, kBound);
  lab.summarized = kBuckets;
  lab.Reference(kOutput, kLarge, Truth());
  lab.Candidate(kOutput, kLarge, candidate);
  EXPECT_THAT(lab.First(), HasSubstr("fp8 e4m3"));
  EXPECT_THAT(lab.First(), HasSubstr("the sample of 256 elements"));
}

TEST(OfSamples, SomethingOldIsInTheWrongElements) {
  TensorId parameter = Id("fc.weight", Role::kParam);
  const auto old = RandomValues(44, kElements);
  std::vector<double> candidate = Truth();
  for (size_t i = 0; i < kElements / 2; ++i) candidate[i] += 0.5 * old[i];
  Lab lab(kReduced, kBound);
  lab.summarized = kBuckets;
  lab.Reference(kReduced, kLarge, Truth());
  lab.Candidate(kReduced, kLarge, Noisy(candidate, 1e-5));
  lab.Candidate(parameter, kLarge, old);
  EXPECT_THAT(lab.First(), StartsWith("S: candidate minus reference is 0.5"));
  EXPECT_THAT(lab.First(), HasSubstr("the sample of 256 elements"));
}

TEST(OfSamples, AnotherPlacesValueIsRecognised) {
  const auto other = RandomValues(12, kElements);
  Lab lab(kOutput, kBound);
  lab.summarized = kBuckets;
  lab.Reference(kOutput, kLarge, Truth());
  lab.Reference(Id("neighbour", Role::kOutput), kLarge, other);
  lab.Candidate(kOutput, kLarge, Noisy(other, 1e-5));
  EXPECT_THAT(lab.First(),
              StartsWith("W: it equals the reference's output  of neighbour"));
}

TEST(OfSamples, ShardsThatChangedPlacesAreAPermutation) {
  // Rank 0 holds what rank 1 should, and the reverse.
  std::vector<double> candidate = Truth();
  std::rotate(candidate.begin(), candidate.begin() + kElements / 2,
              candidate.end());
  Lab lab = Summarized(candidate, Parts(2, 0));
  EXPECT_THAT(lab.First(), StartsWith("X: along one axis (dimension 0)"));
  EXPECT_THAT(lab.First(), HasSubstr("holds rank 1's part"));
  EXPECT_THAT(lab.First(), HasSubstr("the sample of 256 elements"));
  EXPECT_EQ(Summarized(candidate, Parts(2, 0), nullptr, 0).Letters(), "");
}

TEST(OfSamples, EachRowMayHaveAFactorOfItsOwn) {
  std::vector<double> candidate = Truth();
  for (size_t i = 0; i < candidate.size(); ++i) {
    candidate[i] *= 2 + std::sin(static_cast<double>(i / 64));
  }
  Lab lab(kOutput, 1e-5);
  lab.summarized = kBuckets;
  lab.Reference(kOutput, kLarge, Truth());
  lab.Candidate(kOutput, kLarge, Noisy(candidate, 1e-6));
  EXPECT_THAT(lab.First(), HasSubstr("times a factor of their own"));
  EXPECT_THAT(lab.First(), HasSubstr("the sample of 256 elements"));
}

TEST(OfSamples, CopiesThatAreTermsOfASum) {
  const auto term = RandomValues(31, kElements);
  const std::vector<double> truth = Truth();
  const Damage terms = [&](Piece* piece) {
    for (size_t i = 0; i < kElements; ++i) {
      piece->values[i] = piece->rank == 0 ? truth[i] - term[i] : term[i];
    }
    return true;
  };
  Lab lab = Summarized(truth, Copies(2), terms);
  EXPECT_THAT(lab.First(), StartsWith("P: copies on ranks 0, 1 differ"));
  EXPECT_THAT(lab.First(), HasSubstr("a sum over tp is missing"));
  // One copy that is off by little: their mean is nearly right, and no mean is
  // missing.
  const Damage one = [&](Piece* piece) {
    if (piece->rank != 0) return true;
    for (size_t i = 0; i < kElements; ++i) {
      piece->values[i] += 6 * kBound * (i % 2 == 0 ? 1 : -1);
    }
    return true;
  };
  EXPECT_THAT(Summarized(truth, Copies(4), one).Letters(), Not(HasSubstr("P")));
}

TEST(OfSamples, AReplayOfWhichOnlyDigestsAreKnownIsNoRace) {
  Lab lab = Summarized(RandomValues(3, kElements), kWhole, nullptr, 0);
  Evidence evidence = lab.Gather();
  TensorJudgement judgement = *evidence.judgement;
  judgement.not_repeatable = true;
  judgement.repeat = {false, 1};  // other bits, who knows how far
  evidence.judgement = &judgement;
  evidence.leg = &judgement.legs.front();
  EXPECT_TRUE(NotRepeatable(evidence));
  judgement.legs.front().uncertain = true;
  EXPECT_FALSE(NotRepeatable(evidence));
}

}  // namespace
}  // namespace ttrace::kept_sample_test
