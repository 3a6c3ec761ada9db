// Each rule on synthetic tensors with noise: where it must speak, where it must
// not, and what lies just beside.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/diagnose/operand_rounding.h"
#include "src/diagnose/testing/evidence_lab.h"

namespace ttrace::rules_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr double kNoise = 1e-3;
constexpr double kBound = 2e-3;

const TensorId kOutput = Id("layer", Role::kOutput);
const TensorId kReduced = Id("fc.weight", Role::kGradReduced);

std::vector<double> Truth() { return RandomValues(5, kCount); }

std::vector<double> Times(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

std::vector<double> Plus(std::vector<double> values,
                         const std::vector<double>& other, double factor = 1) {
  for (size_t i = 0; i < values.size(); ++i) values[i] += factor * other[i];
  return values;
}

Lab OutputLab(const std::vector<double>& candidate,
              const Sharding& sharding = kWhole,
              const Damage& damage = nullptr) {
  Lab lab(kOutput, kBound);
  lab.Reference(kOutput, kShape, Truth());
  lab.Candidate(kOutput, kShape, Noisy(candidate, kNoise), sharding, damage);
  return lab;
}

TEST(AllRules, SaySomethingOnlyAboutWhatTheyKnow) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    // A stranger; the reference with large errors; with half its size.
    const auto other = RandomValues(100 + seed, kCount);
    EXPECT_EQ(OutputLab(other).Letters(), "") << seed;
    EXPECT_EQ(OutputLab(Plus(Truth(), other, 0.3)).Letters(), "") << seed;
    EXPECT_EQ(OutputLab(Plus(Truth(), other, 0.01), TwoByTwo()).Letters(), "");
    EXPECT_EQ(OutputLab(Plus(Truth(), other), Parts(2, 2)).Letters(), "");
    Lab lab(kReduced, kBound);
    Sharding summed = Copies(2);
    summed.reduced_over = {"tp"};
    lab.Reference(kReduced, kShape, Truth());
    lab.Candidate(kReduced, kShape, Plus(Truth(), other), summed);
    EXPECT_EQ(lab.Letters(), "") << seed;
  }
}

TEST(ConstantFactor, OfTheWholeTensor) {
  Lab lab = OutputLab(Times(Truth(), 4), Parts(2, 2));
  EXPECT_THAT(lab.First(), StartsWith("K: it is 4"));
  EXPECT_THAT(lab.First(), HasSubstr("(tp = 2)^2"));
  EXPECT_EQ(lab.Letters(), "K");
}

TEST(ConstantFactor, IsNotAFactorWithARemainder) {
  const auto other = RandomValues(9, kCount);
  EXPECT_EQ(OutputLab(Plus(Times(Truth(), 2), other, 0.1)).Letters(), "");
  // Just out of bounds, in a random direction.
  EXPECT_EQ(OutputLab(Plus(Truth(), other, 3e-3)).Letters(), "");
}

TEST(ConstantFactor, ASmallValueIsNotTheReferenceTimesNothing) {
  const auto letters = [](const std::vector<double>& candidate) {
    Lab lab(kOutput, 1e-6);
    lab.Reference(kOutput, kShape, Truth());
    lab.Candidate(kOutput, kShape, candidate);
    return lab.Letters();
  };
  const auto stranger = Times(RandomValues(9, kCount), 4e-3);
  EXPECT_EQ(letters(Plus(stranger, Truth(), 1.4e-3)), "");
  for (const double factor : {1.4e-3, 0x1p-14}) {
    EXPECT_EQ(letters(Times(Truth(), factor)), "K") << factor;
  }
}

TEST(ConstantFactor, OfOneRanksPart) {
  Lab lab = OutputLab(Truth(), Parts(2, 2), [](Piece* piece) {
    if (piece->rank == 1) piece->values = Times(piece->values, 0.5);
    return true;
  });
  EXPECT_EQ(lab.Letters(), "K");
  EXPECT_THAT(lab.First(), HasSubstr("on rank 1, and right elsewhere"));
  EXPECT_THAT(lab.First(), HasSubstr("1 / (tp = 2)"));
}

TEST(ConstantFactor, SaysNothingOfPartsWithSeveralFactors) {
  Lab lab = OutputLab(Truth(), Parts(2, 2), [](Piece* piece) {
    piece->values = Times(piece->values, piece->rank == 1 ? 0.5 : 3);
    return true;
  });
  EXPECT_EQ(lab.Letters(), "");
}

TEST(ConstantFactor, QuotesTheAttributeThatSupportsIt) {
  Lab lab = OutputLab(Times(Truth(), 2));
  lab.attributes = {
      {"layer", "gradient_scaling_factor", "1.0", "0.5", false, {3}},
      {"other", "gradient_scaling_factor", "7.0", "0.5", false, {3}}};
  EXPECT_THAT(lab.First(), HasSubstr("gradient_scaling_factor of layer is 1.0 "
                                     "where the topology says 0.5 (rank 3)"));
  EXPECT_THAT(lab.First(), Not(HasSubstr("7.0")));
}

// Five elements are close to some multiple, whatever they are.
class SmallGradientTest : public testing::Test {
 protected:
  static constexpr double kBoundOfGradients = 1e-6;
  const TensorId kBias = {"head.bias", Role::kGradReduced, 0, 0,
                          "",          Pass::kBackward};

  // One that is `factor` x its reference, but for a part of its error.
  static TensorJudgement Beside(const std::string& fqn, double factor,
                                int64_t elements = 64, double rest = 0) {
    TensorJudgement t;
    t.id = {fqn, Role::kGradReduced, 0, 0, "", Pass::kBackward};
    t.verdict = TensorVerdict::kDiverged;
    LegJudgement leg;
    leg.leg = "real";
    leg.bound = kBoundOfGradients;
    leg.headroom = 1e6;
    leg.stats.count = elements;
    leg.stats.sum_sq_ref = 1;
    leg.stats.sum_err_ref = factor - 1;
    leg.stats.sum_sq_err = (factor - 1) * (factor - 1) + rest * rest;
    t.legs = {leg};
    t.deciding_leg = 0;
    return t;
  }

  std::string Says(const std::vector<double>& candidate,
                   std::vector<TensorJudgement> beside,
                   const std::vector<double>& reference = {0.5, -0.25, 0.125,
                                                           -0.5, 0.375}) const {
    Lab lab(kBias, kBoundOfGradients);
    lab.Reference(kBias, {5}, reference);
    lab.Candidate(kBias, {5}, candidate);
    lab.beside = std::move(beside);
    return lab.First();
  }

  const std::vector<double> kTwice = {1, -0.5, 0.25, -1, 0.75};
};

TEST_F(SmallGradientTest, HasTheFactorOfTheOthers) {
  EXPECT_EQ(Says(kTwice, {}), "") << "none of its own";
  EXPECT_THAT(Says(kTwice, {Beside("a", 2), Beside("b", 2)}),
              AllOf(StartsWith("K: it is 2 x the reference"),
                    HasSubstr("that of all 2 larger tensors")));
}

TEST_F(SmallGradientTest, IsNotScaledByWhatItDoesNotFollow) {
  const std::vector<TensorJudgement> others = {Beside("a", 3), Beside("b", 3)};
  EXPECT_EQ(Says(kTwice, others), "");
  EXPECT_EQ(Says({1, -0.5, 0.25, -1, 0.5}, {Beside("a", 2), Beside("b", 2)}),
            "");
}

TEST_F(SmallGradientTest, OthersThatAreNotAllScaledAlikeGiveNoFactor) {
  EXPECT_EQ(Says(kTwice, {Beside("a", 2)}), "") << "one is not all";
  EXPECT_EQ(Says(kTwice, {Beside("a", 2), Beside("b", 2), Beside("c", 4)}), "");
  EXPECT_EQ(
      Says(kTwice, {Beside("a", 2), Beside("b", 2), Beside("c", 2, 64, 0.5)}),
      "");
  EXPECT_EQ(Says(kTwice, {Beside("a", 2, 5), Beside("b", 2, 5)}), "")
      << "as small";
  TensorJudgement within = Beside("c", 4);
  within.legs[0].headroom = 0.5;
  EXPECT_THAT(Says(kTwice, {Beside("a", 2), Beside("b", 2), within}),
              StartsWith("K: "));
  TensorJudgement estimated = Beside("c", 2);
  estimated.legs[0].stats.sq_err_above = 0.1;
  EXPECT_EQ(Says(kTwice, {Beside("a", 2), Beside("b", 2), estimated}), "");
}

TEST_F(SmallGradientTest, ZerosHaveNoFactor) {
  EXPECT_EQ(Says(kTwice, {Beside("a", 2), Beside("b", 2)}, {0, 0, 0, 0, 0}),
            "");
}

TEST(MissingValue, EverywhereOnARankOrInSomeRows) {
  EXPECT_EQ(OutputLab(Times(Truth(), 0)).Letters(), "M");
  Lab rank = OutputLab(Truth(), Parts(2, 2), [](Piece* piece) {
    if (piece->rank == 1) piece->values = Times(piece->values, 0);
    return true;
  });
  EXPECT_EQ(rank.Letters(), "M");
  EXPECT_THAT(rank.First(), HasSubstr("rank 1"));
  auto rows = Truth();
  for (size_t i = 256; i < 384; ++i) rows[i] = 0;
  EXPECT_EQ(OutputLab(rows).Letters(), "M");
  // Not only zeros are wrong.
  rows[700] += 1;
  EXPECT_EQ(OutputLab(rows).Letters(), "");
}

TEST(MissingValue, OfAStepWithoutItsGradient) {
  const TensorId updated = Id("weight", Role::kParamUpdated);
  Lab lab(updated, kBound);
  lab.culprit().direction = Direction::kUpdate;
  lab.Reference(updated, kShape, Truth());
  lab.Candidate(updated, kShape, Truth());
  lab.Candidate(Id("weight", Role::kParam), kShape, Truth());
  TensorJudgement absent;
  absent.id = Id("weight", Role::kGradReduced);
  lab.unmatched = {absent};
  Evidence evidence = lab.Gather();
  evidence.leg = nullptr;  // a step that was not made has none
  const auto found = AbsentGradient(evidence);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->evidence,
              HasSubstr("the candidate has no reduced gradient of weight"));
  evidence.unmatched.clear();
  EXPECT_FALSE(AbsentGradient(evidence));
}

TEST(MissingValue, OfAGradientThatTheCandidateHasNot) {
  // The module's input gradient is wrong, and its bias has no gradient.
  const TensorId gradient = Id("layer", Role::kGradInput);
  const TensorId bias = Id("layer.bias", Role::kParam);
  for (const bool renamed : {false, true}) {
    Lab lab(gradient, kBound);
    lab.culprit().direction = Direction::kBackward;
    lab.Reference(gradient, kShape, Truth());
    lab.Candidate(gradient, kShape,
                  RandomValues(9, static_cast<size_t>(kCount)));
    lab.Reference(bias, {8}, RandomValues(3, 8));
    if (!renamed) lab.Candidate(bias, {8}, RandomValues(3, 8));
    TensorJudgement absent;
    absent.id = Id("layer.bias", Role::kGradLocal);
    absent.id.iteration = 1;
    lab.unmatched = {absent};
    EXPECT_EQ(lab.Letters(), renamed ? "" : "M");
    if (renamed) continue;
    EXPECT_THAT(lab.First(), HasSubstr("no gradient of layer.bias"));
    lab.culprit().direction = Direction::kForward;
    EXPECT_EQ(lab.Letters(), "");
    lab.culprit().direction = Direction::kBackward;
    lab.culprit().fqn = "other";
    EXPECT_EQ(lab.Letters(), "");
  }
}

// Rank r holds term r of a sum of `n`.
Damage TermsOf(const std::vector<double>& whole, int n) {
  return [whole, n](Piece* piece) {
    if (piece->rank + 1 == n) {
      piece->values = whole;
      for (int r = 0; r + 1 < n; ++r) {
        piece->values =
            Plus(piece->values,
                 RandomValues(50 + static_cast<unsigned>(r), kCount), -1);
      }
    } else {
      piece->values =
          RandomValues(50 + static_cast<unsigned>(piece->rank), kCount);
    }
    return true;
  };
}

TEST(MissingPartialSum, CopiesThatAreTerms) {
  Lab lab = OutputLab(Truth(), Copies(2), TermsOf(Truth(), 2));
  EXPECT_EQ(lab.Letters(), "PR");
  EXPECT_THAT(lab.First(), HasSubstr("a sum over tp is missing"));
}

TEST(MissingPartialSum, CopiesThatWereSummedInGroupsThatAreTooSmall) {
  const auto terms = TermsOf(Truth(), 2);
  Lab lab = OutputLab(Truth(), Copies(4), [&](Piece* piece) {
    Piece half = *piece;
    half.rank = piece->rank / 2;
    terms(&half);
    piece->values = half.values;
    return true;
  });
  EXPECT_EQ(lab.Letters(), "PR");
  EXPECT_THAT(lab.First(), HasSubstr("summed over 2 of 4 ranks only"));
}

TEST(MissingPartialSum, OverOneOfTwoDimensionsInWhichCopiesDiffer) {
  Sharding s;
  s.mesh.dims = {{"dp", 2}, {"tp", 2}};
  const auto terms = TermsOf(Truth(), 2);
  Lab lab = OutputLab(Truth(), s, [&](Piece* piece) {
    Piece half = *piece;
    half.rank = piece->coordinate[1];
    terms(&half);
    piece->values = half.values;
    // dp differs by one bit: no term, but a dimension along which copies do.
    if (piece->coordinate[0] == 1) piece->values[0] *= 1 + 1e-6;
    return true;
  });
  EXPECT_EQ(lab.Letters(), "PR");
  EXPECT_THAT(lab.First(), HasSubstr("a sum over tp is missing"));
}

TEST(MissingPartialSum, CopiesThatDifferOtherwiseAreOnlyReplicas) {
  Lab lab = OutputLab(Truth(), Copies(2), [](Piece* piece) {
    if (piece->rank == 1) piece->values = RandomValues(8, kCount);
    return true;
  });
  EXPECT_EQ(lab.Letters(), "R");
  EXPECT_THAT(lab.First(), HasSubstr("those of rank 0 are the reference's, "
                                     "those of rank 1 are not"));
}

TEST(MissingPartialSum, OneWrongCopyIsNotATermOfAMean) {
  // Just out of bounds: what it leaves in the mean of two is within.
  for (const double error : {1.5, 3.0}) {
    Lab lab = OutputLab(Truth(), Copies(2), [&](Piece* piece) {
      if (piece->rank == 1) {
        piece->values =
            Plus(piece->values, RandomValues(8, kCount), error * kBound);
      }
      return true;
    });
    EXPECT_EQ(lab.Letters(), "R");
  }
}

TEST(MissingPartialSum, NamesWhoseTermsAreInAReducedGradient) {
  Lab lab(kReduced, kBound);
  const auto own = RandomValues(50, kCount);
  const auto rest = Plus(Truth(), own, -1);
  lab.Reference(kReduced, kShape, Truth());
  // Both ranks hold rank 0's term: no copy differs, and nothing is summed.
  lab.Candidate(kReduced, kShape, Noisy(own, kNoise), Copies(2));
  Sharding partial = Copies(2);
  partial.placements = {{"tp", Partial{}}};
  lab.Candidate(Id("fc.weight", Role::kGradLocal), kShape, Truth(), partial,
                [&](Piece* piece) {
                  piece->values = piece->rank == 0 ? own : rest;
                  return true;
                });
  EXPECT_EQ(lab.Letters(), "P");
  EXPECT_THAT(lab.First(),
              HasSubstr("the sum of the local gradients of rank 0"));
  EXPECT_THAT(lab.First(), HasSubstr("the terms of rank 1 are missing"));
}

// As much of the candidate is not the reference's as the other way round:
// values changed places, and no term is missing.
TEST(LostTerms, AreNotInferredWhereFewValuesChangedPlaces) {
  std::vector<double> moved = Truth();
  std::reverse(moved.begin(), moved.begin() + 100);
  Sharding copies = Copies(2);
  copies.reduced_over = {"tp"};
  Lab lab(Id("layer", Role::kOutput), kBound);
  lab.Reference(Id("layer", Role::kOutput), kShape, Truth());
  lab.Candidate(Id("layer", Role::kOutput), kShape, moved, copies);
  EXPECT_EQ(lab.Letters().find('P'), std::string::npos);
}

// What is left is uncorrelated with what is missing: a term was lost, unless
// all sums were seen to be made.
TEST(LostTerms, AreNotInferredWhereTheSumWasMade) {
  Sharding summed = Copies(2);
  summed.reduced_over = {"tp"};
  const auto rest = RandomValues(52, kCount);
  Lab lost(Id("layer", Role::kOutput), kBound);
  lost.Reference(Id("layer", Role::kOutput), kShape, Plus(Truth(), rest));
  lost.Candidate(Id("layer", Role::kOutput), kShape, Noisy(Truth(), kNoise),
                 summed);
  EXPECT_EQ(lost.Letters(), "P");
  EXPECT_THAT(lost.First(), HasSubstr("uncorrelated"));
  lost.wrong_group = "the all_reduce is over ranks {0, 2}";
  EXPECT_EQ(lost.Letters(), "WP");
  EXPECT_EQ(lost.First(), "W: the all_reduce is over ranks {0, 2}");
  lost.wrong_group.clear();
  lost.sums_were_made = true;
  EXPECT_EQ(lost.Letters(), "");
}

TEST(OtherIteration, IsStale) {
  const TensorId now = Id("layer", Role::kOutput, 1);
  const TensorId before = Id("layer", Role::kOutput, 0);
  const auto old = RandomValues(31, kCount);
  for (const double mixed : {0.0, 0.1}) {
    Lab lab(now, kBound);
    lab.Reference(now, kShape, Truth());
    lab.Reference(before, kShape, old);
    lab.Candidate(now, kShape, Noisy(Plus(old, Truth(), mixed), kNoise));
    EXPECT_EQ(lab.Letters(), mixed == 0 ? "S" : "") << mixed;
  }
}

TEST(UnchangedParameter, OnSomeRanksOnly) {
  const TensorId updated = Id("fc.weight", Role::kParamUpdated);
  const auto old = RandomValues(31, kCount);
  for (const bool all : {false, true}) {
    Lab lab(updated, 0);
    lab.Candidate(Id("fc.weight", Role::kParam), kShape, old, Copies(2));
    lab.Candidate(updated, kShape, Truth(), Copies(2), [&](Piece* piece) {
      if (piece->rank == 1 || all) piece->values = old;
      return true;
    });
    EXPECT_EQ(lab.Letters(), all ? "" : "SR");
    if (!all) {
      EXPECT_THAT(lab.First(), HasSubstr("on rank 1"));
    }
  }
}

TEST(Leftover, IsAMultipleOfSomethingOldInTheWrongElements) {
  const TensorId id = Id("fc.weight", Role::kGradLocal, 1);
  const auto parameter = RandomValues(41, kCount);
  const auto stranger = RandomValues(42, kCount);
  for (const bool real : {true, false}) {
    Lab lab(id, kBound);
    auto candidate = Noisy(Truth(), kNoise);
    for (size_t i = 0; i < 300; ++i) {
      candidate[i] += (real ? parameter : stranger)[i];
    }
    lab.Reference(id, kShape, Truth());
    lab.Candidate(id, kShape, candidate);
    lab.Candidate(Id("fc.weight", Role::kParam), kShape, parameter);
    lab.Candidate(Id("fc.weight", Role::kGradReduced), kShape,
                  RandomValues(43, kCount));
    EXPECT_EQ(lab.Letters(), real ? "S" : "");
    if (real) {
      EXPECT_THAT(lab.First(), HasSubstr("the parameter itself"));
    }
  }
}

// A linear layer of 8 outputs and 16 inputs over 12 positions and 8 rows, four
// micro-batches of two rows.
struct LinearRun {
  static constexpr int64_t kOut = 8;
  static constexpr int64_t kIn = 16;
  std::vector<double> arriving = RandomValues(60, 12 * 8 * kOut);
  std::vector<double> input = RandomValues(61, 12 * 8 * kIn);

  std::vector<double> Gradient(const std::vector<double>& weights) const {
    std::vector<double> out(kOut * kIn, 0);
    for (size_t s = 0; s < 12; ++s) {
      for (size_t b = 0; b < 8; ++b) {
        for (size_t o = 0; o < kOut; ++o) {
          for (size_t i = 0; i < kIn; ++i) {
            out[o * kIn + i] += weights[b / 2] *
                                arriving[(s * 8 + b) * kOut + o] *
                                input[(s * 8 + b) * kIn + i];
          }
        }
      }
    }
    return out;
  }

  Lab Make(const std::vector<double>& weights, bool linear = true,
           Role role = Role::kGradLocal) const {
    const TensorId id = Id("fc.weight", role);
    Lab lab(id, kBound);
    auto reference = Gradient({1, 1, 1, 1});
    auto candidate = Gradient(weights);
    if (!linear) {
      const auto other = RandomValues(62, kOut * kIn);
      reference = Plus(reference, other, 10);
      candidate = Plus(candidate, other, 10);
    }
    lab.Reference(id, {kOut, kIn}, reference);
    lab.Candidate(id, {kOut, kIn}, Noisy(candidate, kNoise));
    for (const bool reference_side : {true, false}) {
      const auto add = [&](const TensorId& what, const Shape& shape,
                           const std::vector<double>& values) {
        if (reference_side) {
          lab.Reference(what, shape, values);
        } else {
          lab.Candidate(what, shape, values, TwoByTwo());
        }
      };
      add(Id("fc", Role::kGradOutput), {12, 8, kOut}, arriving);
      add(Id("fc", Role::kInput), {12, 8, kIn}, input);
    }
    return lab;
  }
};

TEST(MicroBatchTerms, NamesThoseThatAGradientHolds) {
  Lab last = LinearRun().Make({0, 0, 0, 1});
  EXPECT_EQ(last.Letters(), "S");
  EXPECT_THAT(last.First(), HasSubstr("only micro-batch 3; micro-batches 0, 1, "
                                      "2 were overwritten or left out"));
  Lab twice = LinearRun().Make({1, 2, 1, 1});
  EXPECT_THAT(twice.First(), HasSubstr("micro-batch 1 counted more than once"));
  EXPECT_EQ(twice.Letters(), "S");
}

// The terms say which micro-batches it holds, the reduction says why.
TEST(ReducedEarly, IsWhyMicroBatchesAreNotInASum) {
  Lab lab = LinearRun().Make({1, 1, 0, 0});
  EXPECT_EQ(lab.Letters(), "S");
  lab.reduced_early = EarlyReduction{{2, 3}, {0, 1}};
  EXPECT_EQ(lab.Letters(), "P");
  EXPECT_EQ(lab.First(),
            "P: a partial sum was reduced: micro-batches 2, 3 came after the "
            "reduction had begun (ranks 0, 1)");
  // Before any term came: why it is zero stands before that it is.
  Lab none = LinearRun().Make({0, 0, 0, 0});
  EXPECT_THAT(none.Letters(), Not(HasSubstr("P")));
  none.reduced_early = EarlyReduction{{0, 1, 2, 3}, {0}};
  EXPECT_EQ(none.Letters(), "PM");
}

// As the micro-batches that are missing in it, and so that nobody looks for
// them elsewhere.
TEST(ClearedEarly, IsWhyMicroBatchesReachNoWeight) {
  Lab rank = LinearRun().Make({0, 0, 1, 1}, true, Role::kGradReduced);
  EXPECT_THAT(rank.Letters(), HasSubstr("P"));
  rank.cleared = Clearing{{1, 2}, {0, 1}};
  EXPECT_EQ(rank.First(),
            "S: the loop clears it after 2 micro-batches of the iteration, "
            "before any step (ranks 0, 1): what was there reaches no weight; "
            "the reference's loop does not");
}

// A reduced gradient that lacks all of a rank's lacks that rank's term; a
// rank's own gradient, or one that lacks some of each, has lost them otherwise.
TEST(MicroBatchTerms, AllOfARankAreATermThatWasNotAdded) {
  Lab rank = LinearRun().Make({1, 1, 0, 0}, true, Role::kGradReduced);
  EXPECT_EQ(rank.Letters(), "P");
  EXPECT_THAT(rank.First(), HasSubstr("only micro-batches 0, 1, and none of "
                                      "rank 1: the sum over ranks"));
  EXPECT_EQ(LinearRun().Make({1, 1, 0, 0}).Letters(), "S");
  EXPECT_EQ(LinearRun().Make({1, 0, 1, 0}, true, Role::kGradReduced).Letters(),
            "S");
}

TEST(MicroBatchTerms, AreSilentWhereTheyDoNotFit) {
  EXPECT_EQ(LinearRun().Make({0, 0, 0, 1}, false).Letters(), "");
  EXPECT_EQ(LinearRun().Make({0.7, 1.2, 1, 0.4}).Letters(), "");
  EXPECT_EQ(LinearRun().Make({2, 2, 2, 2}).Letters(), "K");
}

TEST(MovedSlices, ASequenceWhoseHalvesAreSwappedIsAPermutation) {
  Lab lab = OutputLab(Truth(), Parts(2, 0), [](Piece* piece) {
    const auto all = Truth();
    const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
    piece->values = piece->rank == 0
                        ? std::vector<double>(all.begin() + half, all.end())
                        : std::vector<double>(all.begin(), all.begin() + half);
    return true;
  });
  EXPECT_EQ(lab.Letters(), "X");
  EXPECT_THAT(lab.First(), HasSubstr("rank 0 holds rank 1's part"));
}

TEST(MovedSlices, ARankWithAnotherRanksPartIsAWrongSlice) {
  Lab lab = OutputLab(Truth(), Parts(2, 0), [](Piece* piece) {
    const auto all = Truth();
    const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
    piece->values = {all.begin(), all.begin() + half};
    return true;
  });
  EXPECT_EQ(lab.Letters(), "W");
  EXPECT_THAT(lab.First(), HasSubstr("rank 1 holds rank 0's part"));
}

TEST(MovedSlices, RowsOfAnotherMicroBatchAreStale) {
  auto moved = Truth();
  for (size_t s = 0; s < 12; ++s) {
    for (size_t b = 2; b < 4; ++b) {  // micro-batch 1 holds what 0 had
      for (size_t h = 0; h < 16; ++h) {
        moved[(s * 8 + b) * 16 + h] = moved[(s * 8 + b - 2) * 16 + h];
      }
    }
  }
  Lab lab = OutputLab(moved, TwoByTwo());
  EXPECT_EQ(lab.Letters(), "S");
  EXPECT_THAT(lab.First(), HasSubstr("along the batch"));
}

// Everything around the wrong part is right, in the sequence, in the columns
// and in the other micro-batches.
TEST(MovedSlices, OneRanksPartOfOneMicroBatchIsLookedAtAlone) {
  const auto truth = Truth();
  const auto right_half = [&](size_t s, size_t b) {
    const auto at =
        truth.begin() + static_cast<std::ptrdiff_t>((s * 8 + b) * 16 + 8);
    return std::vector<double>(at, at + 8);
  };
  const auto damaged = [&](const std::function<std::pair<size_t, size_t>(
                               size_t, size_t)>& source) {
    Sharding s;
    s.mesh.dims = {{"dp", 1}, {"tp", 2}};
    s.placements = {{"tp", Shard{2}}};
    s.batch_dim = 1;
    s.micro_batches = {{2, 2, 2, 2}};
    return OutputLab(truth, s, [&, source](Piece* piece) {
      if (piece->rank != 1 || piece->micro_batch != 1) return true;
      piece->values.clear();
      for (size_t seq = 0; seq < 12; ++seq) {
        for (size_t row = 2; row < 4; ++row) {
          const auto [from_seq, from_row] = source(seq, row);
          const auto values = right_half(from_seq, from_row);
          piece->values.insert(piece->values.end(), values.begin(),
                               values.end());
        }
      }
      return true;
    });
  };
  // Its sequence's halves are swapped.
  Lab swapped = damaged([](size_t s, size_t b) {
    return std::pair{(s + 6) % 12, b};
  });
  EXPECT_EQ(swapped.Letters(), "X");
  EXPECT_THAT(swapped.First(), HasSubstr("(dimension 0)"));
  // It holds what it had in micro-batch 0.
  Lab stale = damaged([](size_t s, size_t b) { return std::pair{s, b - 2}; });
  EXPECT_EQ(stale.Letters(), "S");
  EXPECT_THAT(stale.First(), HasSubstr("row 2-3 hold the reference's 0-1"));
}

TEST(MovedSlices, OfDifferingCopiesTheWrongOneIsLookedAt) {
  auto swapped = Truth();
  std::rotate(swapped.begin(), swapped.begin() + kCount / 2, swapped.end());
  Lab lab = OutputLab(Truth(), Copies(2), [&](Piece* piece) {
    if (piece->rank == 1) piece->values = swapped;
    return true;
  });
  EXPECT_EQ(lab.Letters(), "XR");
}

TEST(MovedSlices, ABiasIsMatchedByWholeShards) {
  const TensorId id = Id("fc.bias", Role::kGradReduced);
  const auto truth = RandomValues(71, 64);
  Lab lab(id, kBound);
  lab.Reference(id, {64}, truth);
  lab.Candidate(id, {64}, truth, Parts(2, 0), [&](Piece* piece) {
    piece->values = {truth.begin(), truth.begin() + 32};
    return true;
  });
  EXPECT_EQ(lab.Letters(), "W");
}

TEST(FlatOffset, RunsOfAnotherParameterAreAtAWrongPlace) {
  const Shape shape = {8, 40};
  const TensorId weight = Id("fc1.weight", Role::kGradReduced);
  const TensorId other = Id("fc2.weight", Role::kGradReduced);
  const TensorId bias = Id("fc2.bias", Role::kGradReduced);
  const auto own = RandomValues(91, 320);
  const auto buffer = RandomValues(92, 400);
  // The other parameter and its bias lie behind each other; what was taken
  // begins 24 elements too late.
  const std::vector<double> moved(buffer.begin() + 24, buffer.begin() + 344);
  const auto lab_of = [&](const std::vector<double>& held) {
    Lab lab(weight, kBound);
    lab.Reference(weight, shape, own);
    lab.Reference(other, shape, {buffer.begin(), buffer.begin() + 320});
    lab.Reference(bias, {80}, {buffer.begin() + 320, buffer.end()});
    lab.Candidate(weight, shape, Noisy(held, kNoise), Copies(2));
    return lab;
  };
  Lab wrong = lab_of(moved);
  EXPECT_EQ(wrong.Letters(), "W");
  EXPECT_THAT(wrong.First(),
              HasSubstr("from [0, 0] on it holds grad_reduced of "
                        "fc2.weight from [0, 24] on"));
  // Neither a stranger nor an error.
  EXPECT_EQ(lab_of(RandomValues(93, 320)).Letters(), "");
  EXPECT_EQ(lab_of(Plus(own, RandomValues(94, 320), 0.1)).Letters(), "");
}

TEST(OtherPlace, AnotherLayersValueIsWrongAndTheOwnInputMeansNothingWasDone) {
  const auto other = RandomValues(81, kCount);
  const TensorId elsewhere = Id("layer2", Role::kOutput);
  TensorId input = Id("layer", Role::kInput);
  input.arg = "x";
  Lab lab = OutputLab(other);
  lab.Reference(elsewhere, kShape, other);
  EXPECT_EQ(lab.Letters(), "W");
  EXPECT_THAT(lab.First(), HasSubstr("of layer2"));
  lab.Reference(input, kShape, other);
  EXPECT_EQ(lab.Letters(), "Z");
  // Nearly equal is not equal.
  Lab near = OutputLab(other);
  near.Reference(elsewhere, kShape, Noisy(other, 0.02));
  EXPECT_EQ(near.Letters(), "");
}

TEST(WrongModuleAttribute, OfAModuleAroundTheCulprit) {
  const auto other = RandomValues(82, kCount);
  Lab lab = OutputLab(other);
  lab.culprit().fqn = "decoder.layers.2.attention";
  lab.attributes = {{"decoder.layers.2", "layer_number", "1", "3", false, {1}}};
  EXPECT_EQ(lab.Letters(), "W");
  EXPECT_THAT(lab.First(), HasSubstr("layer_number of decoder.layers.2 is 1"));
  lab.attributes.front().fqn = "decoder.layers.20";
  EXPECT_EQ(lab.Letters(), "");
}

TEST(NotRepeatable, IsNoMatterOfGradientsThatReplaysFindEmpty) {
  const TensorId gradient = Id("weight", Role::kGradLocal);
  Lab lab(gradient, kBound);
  lab.Reference(gradient, kShape, Truth());
  lab.Candidate(gradient, kShape, Times(Truth(), 2));
  Evidence evidence = lab.Gather();
  TensorJudgement judgement = *evidence.judgement;
  judgement.not_repeatable = true;
  judgement.repeat = {false, 1};
  evidence.judgement = &judgement;
  evidence.leg = &judgement.legs.front();
  EXPECT_TRUE(NotRepeatable(evidence));
  evidence.gradients_were_kept = true;
  EXPECT_FALSE(NotRepeatable(evidence));
  judgement.id.role = Role::kGradInput;
  EXPECT_TRUE(NotRepeatable(evidence));
}

TEST(OtherMode, OfTheCulpritItselfOnOneSide) {
  const auto other = RandomValues(82, kCount);
  Lab lab = OutputLab(other);
  lab.culprit().fqn = "norm";
  const Attribute evaluates{"norm", "training", "False", "True", false, {0}};
  lab.attributes = {evaluates};
  EXPECT_EQ(lab.Letters(), "H");
  EXPECT_EQ(lab.First(),
            "H: norm is in evaluation mode (`eval()`) in the candidate and in "
            "training mode in the reference");
  // What both do is no difference.
  lab.reference_attributes = {evaluates};
  EXPECT_EQ(lab.Letters(), "");
  lab.attributes.clear();
  EXPECT_THAT(lab.First(), HasSubstr("evaluation mode (`eval()`) in the ref"));
  // A module around it, or beside it, says nothing.
  lab.culprit().fqn = "norm.weight";
  EXPECT_EQ(lab.Letters(), "");
}

TEST(OtherStructure, TheModelItselfHasNoName) {
  const TensorId root = Id("", Role::kOutput);
  Lab lab = OutputLab(RandomValues(82, kCount));
  lab.Reference(root, {8}, RandomValues(3, 8));
  TensorJudgement unmatched;
  unmatched.id = root;
  lab.unmatched = {unmatched};
  EXPECT_THAT(lab.First(),
              HasSubstr("only in the reference (the model itself)"));
}

TEST(OtherStructure, IsWhatOnlyOneSideHas) {
  const TensorId more = Id("more", Role::kOutput);
  for (const bool of_reference : {true, false}) {
    Lab lab = OutputLab(RandomValues(82, kCount));
    if (of_reference) {
      lab.Reference(more, {8}, RandomValues(3, 8));
    } else {
      lab.Candidate(more, {8}, RandomValues(3, 8));
    }
    TensorJudgement unmatched;
    unmatched.id = more;
    lab.unmatched = {unmatched};
    EXPECT_EQ(lab.Letters(), "Z");
    EXPECT_THAT(lab.First(),
                HasSubstr(of_reference ? "1 module or parameter only in the "
                                         "reference (more)"
                                       : "only in the candidate (more)"));
    // Both have it, and one lacks elements.
    lab.Reference(more, {8}, RandomValues(3, 8));
    lab.Candidate(more, {8}, RandomValues(3, 8));
    EXPECT_EQ(lab.Letters(), "");
  }
}

double Rounded(double value, int bits) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)),
                    exponent - bits);
}

TEST(LostPrecision, IsACoarserGridThanTheReferences) {
  auto coarse = Truth();
  for (double& value : coarse) value = Rounded(value, 8);
  Lab lab(kOutput, 1e-6);
  lab.Reference(kOutput, kShape, Truth());
  lab.Candidate(kOutput, kShape, coarse);
  EXPECT_EQ(lab.Letters(), "D");
  EXPECT_THAT(lab.First(), HasSubstr("bfloat16"));

  // One value off the grid.
  auto almost = coarse;
  almost[3] = Truth()[3] * 1.0001;
  Lab off(kOutput, 1e-6);
  off.Reference(kOutput, kShape, Truth());
  off.Candidate(kOutput, kShape, almost);
  EXPECT_EQ(off.Letters(), "");

  // The reference is on it too: whole numbers.
  const auto whole = RandomIntegers(5);
  Lab both(kOutput, 1e-6);
  both.Reference(kOutput, kShape, Times(whole, 1.0 / 128));
  auto moved = Times(whole, 1.0 / 128);
  for (size_t i = 0; i < moved.size(); i += 7) moved[i] += 1.0 / 128;
  both.Candidate(kOutput, kShape, moved);
  EXPECT_EQ(both.Letters(), "");
}

// The output of a linear layer of 16 outputs and 32 inputs over 12 positions
// and 8 rows, each side's operands rounded in its own way.
struct RoundingRun {
  static constexpr int64_t kOut = 16;
  static constexpr int64_t kIn = 32;
  // 0 bits: not at all. Scales of token `t`, which is of row t % 8, and of
  // output `o`.
  struct Grid {
    int bits = 4;
    std::function<double(size_t t)> input = [](size_t) { return 1.0; };
    std::function<double(size_t o)> weight = [](size_t) { return 1.0; };
  };
  static Grid Scaled(int bits, double input, double weight) {
    return {bits, [=](size_t) { return input; },
            [=](size_t) { return weight; }};
  }
  static Grid Exact() { return Scaled(0, 0, 0); }

  std::vector<double> input = RandomValues(63, 12 * 8 * kIn);
  std::vector<double> weight = RandomValues(64, kOut* kIn);
  int iteration = 0;
  Role weight_role = Role::kParam;

  std::vector<double> Output(const Grid& grid) const {
    const auto on_grid = [&](double value, double scale) {
      return grid.bits == 0 ? value : RoundedTo(value, grid.bits, scale);
    };
    std::vector<double> out;
    for (size_t t = 0; t < 12 * 8; ++t) {
      for (size_t o = 0; o < kOut; ++o) {
        double sum = 0.25 * static_cast<double>(o);
        for (size_t i = 0; i < kIn; ++i) {
          sum += on_grid(input[t * kIn + i], grid.input(t)) *
                 on_grid(weight[o * kIn + i], grid.weight(o));
        }
        out.push_back(sum);
      }
    }
    return out;
  }

  Lab Make(const std::vector<double>& reference,
           const std::vector<double>& candidate,
           const Sharding& sharding = Parts(2, 2),
           const Sharding& of_input = Copies(2)) const {
    Lab lab(Id("fc", Role::kOutput, iteration), 1e-4);
    lab.Reference(Id("fc", Role::kOutput, iteration), {12, 8, kOut},
                  Noisy(reference, 1e-6, 78));
    lab.Candidate(Id("fc", Role::kOutput, iteration), {12, 8, kOut},
                  Noisy(candidate, 1e-6), sharding);
    lab.Reference(Id("fc", Role::kInput, iteration), {12, 8, kIn}, input);
    lab.Candidate(Id("fc", Role::kInput, iteration), {12, 8, kIn}, input,
                  of_input);
    const bool updated = weight_role == Role::kParamUpdated;
    lab.Reference(Id("fc.weight", weight_role, iteration - updated),
                  {kOut, kIn}, weight);
    return lab;
  }
  Lab Make(const Grid& reference, const Grid& candidate) const {
    return Make(Output(reference), Output(candidate));
  }
};

TEST(RoundedOperands, OnAnotherGridThanTheReferences) {
  const RoundingRun run;
  const auto whole = RoundingRun::Scaled(4, 1.2, 1.5);
  Lab lab = run.Make(whole, {4, [](size_t) { return 1.7; },
                             [](size_t o) { return o < 8 ? 1.1 : 1.9; }});
  EXPECT_EQ(lab.Letters(), "D");
  EXPECT_THAT(lab.First(), HasSubstr("in 4 of 4 corners"));
  EXPECT_THAT(lab.First(), HasSubstr("rounded here to 4 significant bits, "
                                     "scale of the input 2^k x 1.7"));
  EXPECT_THAT(lab.First(), HasSubstr("in the reference: 4 significant bits, "
                                     "scale of the input 2^k x 1.2"));
  // One rank's weight alone.
  Lab half = run.Make(whole, {4, [](size_t) { return 1.2; },
                              [](size_t o) { return o < 8 ? 1.5 : 1.9; }});
  EXPECT_EQ(half.Letters(), "D");
  EXPECT_THAT(half.First(), HasSubstr("in 2 of 4 corners"));
  EXPECT_EQ(run.Make(whole, RoundingRun::Scaled(3, 1.2, 1.5)).Letters(), "D");
}

TEST(RoundedOperands, OfAReferenceThatDoesNotRound) {
  RoundingRun run;
  Lab lab = run.Make(RoundingRun::Exact(), RoundingRun::Scaled(8, 1, 1));
  EXPECT_EQ(lab.Letters(), "D");
  EXPECT_THAT(lab.First(), HasSubstr("in the reference: neither rounded"));
  // The weight that the step before left.
  run.iteration = 1;
  run.weight_role = Role::kParamUpdated;
  EXPECT_EQ(
      run.Make(RoundingRun::Exact(), RoundingRun::Scaled(8, 1, 1)).Letters(),
      "D");
}

TEST(RoundedOperands, HaveAScaleForEachMicroBatchAndPartOfTheInput) {
  const RoundingRun run;
  const auto reference = run.Output(RoundingRun::Scaled(4, 1.2, 1.5));
  const auto one = [](size_t) { return 1.5; };
  const auto of_rows = [](size_t t) {
    return 1 + 0.2 * static_cast<double>(t % 8 / 2);
  };
  EXPECT_EQ(
      run.Make(reference, run.Output({4, of_rows, one}), TwoByTwo()).Letters(),
      "D");
  // Six ranks hold two positions of the input each.
  const auto of_positions = [](size_t t) {
    return 1.1 + 0.15 * static_cast<double>(t / 16);
  };
  EXPECT_EQ(run.Make(reference, run.Output({4, of_positions, one}), Copies(6),
                     Parts(6, 0))
                .Letters(),
            "D");
  // The reference's own micro-batches.
  Lab lab = run.Make(run.Output({4, of_rows, one}), reference, kWhole, kWhole);
  lab.Reference(Id("fc", Role::kOutput), {12, 8, RoundingRun::kOut},
                run.Output({4, of_rows, one}), TwoByTwo());
  EXPECT_EQ(lab.Letters(), "D");
}

TEST(RoundedOperands, AreSilentWhereTheErrorIsAnother) {
  const RoundingRun run;
  const auto coarse = RoundingRun::Scaled(4, 1.2, 1.5);
  const auto other = RoundingRun::Scaled(4, 1.7, 1.1);
  // The candidate keeps more than the reference.
  EXPECT_EQ(run.Make(coarse, RoundingRun::Exact()).Letters(), "");
  EXPECT_EQ(run.Make(coarse, RoundingRun::Scaled(8, 1, 1)).Letters(), "");
  // As large as a rounding's, and none.
  const auto stranger = RandomValues(65, run.Output(coarse).size());
  const auto exact = run.Output(RoundingRun::Exact());
  for (const double size : {0.01, 0.1, 0.3, 1.0}) {
    EXPECT_EQ(run.Make(exact, Plus(exact, stranger, size)).Letters(), "");
    EXPECT_EQ(
        run.Make(run.Output(coarse), Plus(run.Output(coarse), stranger, size))
            .Letters(),
        "");
  }
  // A rounding is there; it is not what is wrong.
  auto shifted = run.Output(other);
  for (double& value : shifted) value += 3;
  EXPECT_EQ(run.Make(run.Output(coarse), shifted).Letters(), "");
  auto elsewhere = run.Output(other);
  for (size_t i = 12; i < elsewhere.size(); i += 16) elsewhere[i] += 3;
  EXPECT_EQ(run.Make(run.Output(coarse), elsewhere).Letters(), "");
  // So few values that a scale may fit them by chance.
  EXPECT_EQ(
      run.Make(run.Output(coarse), run.Output(other), Parts(4, 2), Parts(12, 0))
          .Letters(),
      "");
  // No linear module: the reference's own output does not come out.
  auto twisted = run.Output(coarse);
  auto twisted_too = run.Output(other);
  for (auto* values : {&twisted, &twisted_too}) {
    for (double& value : *values) value = value > 0 ? value : 0.1 * value;
  }
  EXPECT_EQ(run.Make(twisted, twisted_too).Letters(), "");
}

TEST(LossNormalisation, IsAnotherConstantInEachMicroBatch) {
  const TensorId id = Id("", Role::kGradOutput);
  for (const bool noise_only : {false, true}) {
    Lab lab(id, kBound);
    lab.Reference(id, kShape, Truth());
    lab.Candidate(
        id, kShape, Noisy(Truth(), kNoise), TwoByTwo(), [&](Piece* piece) {
          const double factors[] = {2, 1, 0.5, 1};
          if (noise_only) {
            piece->values =
                RandomValues(static_cast<unsigned>(piece->micro_batch),
                             piece->values.size());
          } else {
            piece->values = Times(piece->values, factors[piece->micro_batch]);
          }
          return true;
        });
    // Tokens 10, 20, 40, 20: each divided by its own count.
    const TensorId tokens = [] {
      TensorId out = Id("loss", Role::kLoss);
      out.arg = "tokens";
      return out;
    }();
    Sharding terms;
    terms.mesh.dims = {{"dp", 2}};
    terms.placements = {{"mb", Partial{}}, {"dp", Partial{}}};
    terms.micro_batches = {{2, 2}, {2, 2}};
    lab.Candidate(tokens, {}, {90}, terms, [](Piece* piece) {
      const double counts[] = {10, 20, 40, 20};
      piece->values = {counts[piece->micro_batch]};
      return true;
    });
    EXPECT_EQ(lab.Letters(), noise_only ? "" : "L");
    if (!noise_only) {
      EXPECT_THAT(lab.First(), HasSubstr(" in micro-batch 0, "));
      EXPECT_THAT(lab.First(), HasSubstr("inverse proportion"));
    }
  }
}

// A mean of means over ranks whose tokens are not as many.
TEST(LossNormalisation, SaysWhichRankHasWhichFactor) {
  const TensorId id = Id("", Role::kGradOutput);
  Lab lab(id, kBound);
  lab.Reference(id, kShape, Truth());
  lab.Candidate(id, kShape, Noisy(Truth(), kNoise), TwoByTwo(),
                [](Piece* piece) {
                  const double factors[] = {1.5, 0.75};
                  piece->values = Times(piece->values, factors[piece->rank]);
                  return true;
                });
  EXPECT_EQ(lab.Letters(), "L");
  EXPECT_THAT(lab.First(), HasSubstr("another constant on each rank: 1.5"));
  EXPECT_THAT(lab.First(), HasSubstr("on rank 0, 0.75"));
}

// One rank has one micro-batch, of two each has its own: their losses are of
// other rows, and only the whole has the factor.
TEST(LossNormalisation, OfRunsThatCutTheBatchOtherwiseIsNamedByASize) {
  const TensorId loss = [] {
    TensorId out = Id("loss", Role::kLoss);
    out.arg = "value";
    return out;
  }();
  for (const float factor : {0.5F, 0.83F}) {
    Lab lab(loss, 1e-6);
    Sharding terms;
    terms.mesh.dims = {{"dp", 2}};
    terms.placements = {{"mb", Partial{}}, {"dp", Partial{}}};
    terms.micro_batches = {{4}, {4}};
    lab.Reference(loss, {}, {4});
    lab.Candidate(loss, {}, {4 * factor}, terms, [&](Piece* piece) {
      piece->values = {factor * (piece->rank == 0 ? 1.F : 3.F)};
      return true;
    });
    EXPECT_EQ(lab.Letters(), factor == 0.5F ? "L" : "");
    if (factor == 0.5F) EXPECT_THAT(lab.First(), HasSubstr("dp = 2"));
  }
}

TEST(LossNormalisation, NamesTheMeshSizeThatAllMicroBatchesShare) {
  const TensorId loss = [] {
    TensorId out = Id("loss", Role::kLoss);
    out.arg = "sum";
    return out;
  }();
  Lab lab(loss, 1e-6);
  Sharding terms;
  terms.mesh.dims = {{"cp", 2}};
  terms.placements = {{"mb", Partial{}}, {"cp", Partial{}}};
  terms.micro_batches = {{1, 1, 1, 1}};
  lab.Reference(loss, {}, {24}, terms, [](Piece* piece) {
    piece->values = {3};
    return true;
  });
  lab.Candidate(loss, {}, {48}, terms, [](Piece* piece) {
    piece->values = {6};
    return true;
  });
  EXPECT_EQ(lab.Letters(), "L");
  EXPECT_THAT(lab.First(), HasSubstr("2 x the reference in every micro-batch"));
  EXPECT_THAT(lab.First(), HasSubstr("the factor equals cp = 2"));
  EXPECT_THAT(lab.First(), Not(HasSubstr("token counts")));
  lab.outputs_are_known = false;
  EXPECT_EQ(lab.Letters(), "") << "of summaries, they may be wrong before it";
}

TEST(NonFinite, CountsAndNamesTheProducer) {
  auto values = Truth();
  values[7] = std::numeric_limits<double>::quiet_NaN();
  Lab lab = OutputLab(values);
  EXPECT_THAT(lab.First(),
              HasSubstr("1 of 1536 elements are NaN or Inf (reference: 0)"));
  EXPECT_THAT(lab.First(), HasSubstr("layer is the first to make any"));
}

TEST(NonFinite, OfAMaskAreSaidAsTheyDiffer) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  auto masked = Truth();
  for (size_t i = 0; i < 60; ++i) masked[i] = -kInf;
  const auto lab_of = [&](const std::vector<double>& values) {
    Lab lab(Id("layer", Role::kOutput), 2e-3);
    lab.Reference(Id("layer", Role::kOutput), kShape, masked);
    lab.Candidate(Id("layer", Role::kOutput), kShape, values);
    return lab;
  };
  auto values = masked;
  values[3] = kInf;
  EXPECT_THAT(lab_of(values).First(),
              AllOf(HasSubstr("1 of 60 elements that are NaN or Inf in the "
                              "reference are Inf of the other sign"),
                    Not(HasSubstr("first to make"))));
  for (size_t i = 0; i < 60; ++i) values[i] = kInf;
  EXPECT_THAT(lab_of(values).First(), HasSubstr("60 of 60 elements that are"));
  values = masked;
  for (size_t i = 0; i < 30; ++i) values[i] = 1;
  EXPECT_THAT(lab_of(values).First(),
              AllOf(HasSubstr("30 of 60 elements that are NaN or Inf in the "
                              "reference are finite"),
                    Not(HasSubstr("first to make"))));
  // As many as the reference, in other places.
  values[100] = values[101] = kInf;
  for (size_t i = 2; i < 30; ++i) values[i] = -kInf;
  EXPECT_THAT(lab_of(values).First(),
              AllOf(HasSubstr("2 of 1536 elements are NaN or Inf where the "
                              "reference is finite"),
                    HasSubstr("2 of 60 elements that are NaN or Inf in the "
                              "reference are finite"),
                    HasSubstr("layer is the first to make any")));
}

// Each rank of a table that is cut by rows has zeros for foreign tokens.
TEST(Diagnose, ZerosInTheTermsOfASumAreExplainedByTheSum) {
  const auto zero_from = [](int rank, size_t begin, size_t end) {
    return [=](Piece* piece) {
      for (size_t i = begin; piece->rank == rank && i < end; ++i) {
        piece->values[i] = 0;
      }
      return true;
    };
  };
  const size_t half = Truth().size() / 2;
  Lab terms = OutputLab(Truth(), Copies(2), [&](Piece* piece) {
    return zero_from(0, 0, half)(piece) &&
           zero_from(1, half, Truth().size())(piece);
  });
  EXPECT_EQ(terms.Letters(), "PMR");
  // One copy is right: nothing is missing in a sum.
  Lab lost = OutputLab(Truth(), Copies(2), zero_from(1, 0, Truth().size()));
  EXPECT_EQ(lost.Letters().front(), 'M');
}

TEST(Diagnose, NamesEachLetterOnceAndAtMostThree) {
  Lab lab = OutputLab(Truth(), Copies(2), TermsOf(Truth(), 2));
  lab.culprit().fqn = "decoder.layers.2";
  lab.attributes = {
      {"decoder.layers.2", "layer_number", "1", "3", false, {1}},
      {"decoder.layers.2", "sequence_parallel", "False", "True", false, {0}}};
  EXPECT_EQ(lab.Letters(), "PWR");
  EXPECT_THAT(lab.First(), HasSubstr("sequence_parallel"));
}

}  // namespace
}  // namespace ttrace::rules_test
