#include "src/judge/judge_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "src/judge/reason_words.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::judge_tensor_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ErrorStats Stats(double rel_err) {
  ErrorStats stats;
  stats.count = 4096;
  stats.mismatched = rel_err > 0 ? stats.count : 0;
  stats.sum_sq_ref = 1;
  stats.sum_sq_err = rel_err * rel_err;
  return stats;
}

// Judges facts that are written by hand: of a module's output on two ranks,
// whose bound is 2e-2.
class TensorJudgeTest : public testing::Test {
 protected:
  TensorJudgeTest() : side_(Open(folder_.path())) {
    plans_.resize(1);
    plans_[0].name = plans_[0].reference_leg = plans_[0].candidate_leg = "real";
    plans_[0].unit_roundoff = 0x1p-8;
  }

  // `graft`: the JSON of what was put in place of the candidate's own.
  static Side Open(const std::string& folder, const std::string& graft = "") {
    OrDie(CreateTraceFolder(folder, "{}", true));
    const auto writer = OpenRank(folder, 0, 1);
    if (!graft.empty()) OrDie(writer->Note("graft", graft));
    OrDie(writer->Close(true, ""));
    return OrDie(Side::Open(folder, {}));
  }

  static TensorFacts Facts(double err) {
    TensorFacts facts;
    facts.id = {"fc", Role::kOutput, 0, 0, "0", Pass::kForward};
    LegFacts leg;
    leg.usable = true;
    leg.candidate.total = Stats(err);
    leg.candidate.instances = {{{0}, -1, Stats(0), 0},
                               {{1}, -1, Stats(err), 0}};
    leg.candidate.regions.resize(1);
    leg.noise.assign(3, PairFacts{Stats(1e-2), {Stats(1e-2)}});
    facts.legs = {leg};
    return facts;
  }

  // A second leg as the first, of which it has the facts.
  void AddLeg(const Leg& name, bool isolated, TensorFacts* facts) {
    plans_.push_back(plans_[0]);
    plans_.back().name = plans_.back().candidate_leg = name;
    plans_.back().isolated = isolated;
    facts->legs.push_back(facts->legs[0]);
    facts->legs.back().plan = plans_.size() - 1;
  }

  TensorJudgement Judge(const TensorFacts& facts,
                        const std::set<int>& unequal_starts = {}) const {
    return JudgeOf(side_, facts, unequal_starts);
  }

  TensorJudgement JudgeOf(const Side& side, const TensorFacts& facts,
                          const std::set<int>& unequal_starts = {}) const {
    const Expectations expectations({facts}, kRunRisk);
    const UnlikeDraws draws(&side, side, {facts});
    const SkippedSteps skipped(&side, side, {});
    return TensorJudge(&side, side, plans_, expectations, draws, skipped,
                       unequal_starts)
        .Judge(facts);
  }

  ScratchFolder folder_;
  Side side_;
  std::vector<LegPlan> plans_;
};

TEST_F(TensorJudgeTest, TheLegsHeadroomIsTheVerdict) {
  EXPECT_EQ(Judge(Facts(0)).verdict, TensorVerdict::kBitwiseEqual);
  EXPECT_EQ(Judge(Facts(0.5e-2)).verdict, TensorVerdict::kWithin);
  EXPECT_EQ(Judge(Facts(1.5e-2)).verdict, TensorVerdict::kSuspect);
  const TensorJudgement out = Judge(Facts(4e-2));
  EXPECT_EQ(out.verdict, TensorVerdict::kDiverged);
  EXPECT_NEAR(out.headroom, 2, 1e-9);
  EXPECT_THAT(out.ranks, ElementsAre(1));
}

TEST_F(TensorJudgeTest, NothingMeasuredOfDamagedBytesIsEvidence) {
  TensorFacts facts = Facts(4e-2);
  facts.damage = "rank 0";
  const TensorJudgement out = Judge(facts);
  EXPECT_EQ(out.verdict, TensorVerdict::kNotCheckable);
  EXPECT_EQ(out.reason.kind, ReasonKind::kDamaged);
  EXPECT_FALSE(out.excused);
  EXPECT_THAT(out.legs, IsEmpty());
}

TEST_F(TensorJudgeTest, WhatDependsOnTheBatchUnknownHowIsNotJudged) {
  TensorFacts facts = Facts(4e-2);
  facts.batch_unknown = true;
  const TensorJudgement out = Judge(facts);
  EXPECT_EQ(out.verdict, TensorVerdict::kNotCheckable);
  EXPECT_EQ(out.reason.kind, ReasonKind::kBatchUnknown);
  EXPECT_TRUE(out.excused);
}

TEST_F(TensorJudgeTest, ItemsOfListsAreJudgedByWhatIsMadeOfThem) {
  TensorFacts facts = Facts(4e-2);
  facts.listed = true;
  const TensorJudgement out = Judge(facts);
  EXPECT_EQ(out.verdict, TensorVerdict::kNotCheckable);
  EXPECT_EQ(out.reason.kind, ReasonKind::kRowOfList);
  EXPECT_TRUE(out.excused);
}

TEST_F(TensorJudgeTest, OfRowsThatArePaddedFurtherWhatBothHaveIsJudged) {
  for (const bool padded : {false, true}) {
    TensorFacts facts = Facts(0.5e-2);
    facts.padded = padded;
    facts.legs[0].candidate.candidate_gap = 8;
    facts.legs[0].candidate.reference_gap = 4;
    facts.legs[0].candidate.common_gap = 2;
    EXPECT_EQ(Judge(facts).verdict,
              padded ? TensorVerdict::kWithin : TensorVerdict::kUnmatched);
    facts.legs[0].candidate.total = Stats(4e-2);
    EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kDiverged);
  }
}

TEST_F(TensorJudgeTest, AlsoOfPaddedRowsNoneMayBeThereTwice) {
  for (const bool of_reference : {false, true}) {
    TensorFacts facts = Facts(0.5e-2);
    facts.padded = true;
    TensorComparison& compared = facts.legs[0].candidate;
    (of_reference ? compared.reference_overlap : compared.candidate_overlap) =
        4;
    EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kUnmatched);
    EXPECT_EQ(Judge(facts).reason.kind, ReasonKind::kElementsMissing);
  }
}

// Of data that capture replaces, what a run read itself is no finding, unless
// it is the reference's rows.
TEST_F(TensorJudgeTest,
       DataThatIsReplacedIsJudgedWhereItsRowsAreTheReferences) {
  const ScratchFolder folder;
  const Side grafted = Open(folder.path(), R"({"what":"data"})");
  TensorFacts facts = Facts(4e-2);
  facts.id = {"data", Role::kData, 0, 0, "x", Pass::kForward};
  facts.exact = true;
  facts.legs[0].noise.clear();
  const TensorJudgement replaced = JudgeOf(grafted, facts);
  EXPECT_EQ(replaced.verdict, TensorVerdict::kNotCheckable);
  EXPECT_EQ(replaced.reason.kind, ReasonKind::kReplacedByGraft);
  facts.own_rows = true;
  const TensorJudgement own = JudgeOf(grafted, facts);
  EXPECT_EQ(own.verdict, TensorVerdict::kDiverged);
  EXPECT_EQ(own.reason.kind, ReasonKind::kElementsDiffer);
}

TEST_F(TensorJudgeTest, RanksThatReadTheSameRowsAreNamed) {
  TensorFacts facts = Facts(4e-2);
  facts.id = {"data", Role::kData, 0, 0, "x", Pass::kForward};
  facts.foreign_parts = RepeatedParts{{0, 1}, {0, 1}};
  for (const bool is_grafted : {false, true}) {
    const ScratchFolder folder;
    const Side side =
        Open(folder.path(), is_grafted ? R"({"what":"data"})" : "");
    const TensorJudgement out = JudgeOf(side, facts);
    EXPECT_EQ(out.verdict, TensorVerdict::kDiverged);
    EXPECT_EQ(out.reason.kind, ReasonKind::kForeignPart);
    EXPECT_THAT(out.ranks, ElementsAre(0, 1));
  }
}

TEST_F(TensorJudgeTest, OfWhatIsNotWholeOnlyAnErrorIsSaid) {
  for (const bool exact : {false, true}) {
    TensorFacts facts = Facts(exact ? 0 : 0.5e-2);
    facts.exact = exact;
    if (exact) facts.legs[0].noise.clear();
    facts.legs[0].candidate.common_gap = 8;
    EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kUnmatched);
    EXPECT_EQ(Judge(facts).reason.kind, ReasonKind::kElementsMissing);
    facts.complete = false;
    EXPECT_EQ(Judge(facts).reason.kind, ReasonKind::kIterationCut);
    facts.legs[0].candidate.total = Stats(4e-2);
    EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kDiverged);
  }
  TensorFacts equal = Facts(0);
  equal.legs[0].candidate.candidate_gap = 8;
  EXPECT_EQ(Judge(equal).verdict, TensorVerdict::kUnmatched);
}

// The isolated leg has a verdict of its own.
TEST_F(TensorJudgeTest, WhatAnIsolatedLegLacksIsNotMissingInTheRun) {
  TensorFacts facts = Facts(0.5e-2);
  AddLeg("isolated", true, &facts);
  facts.legs[1].candidate.common_gap = 8;
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kWithin);
}

TEST_F(TensorJudgeTest, WithoutALegThatCanBeComparedTheReasonIsKept) {
  TensorFacts facts = Facts(4e-2);
  facts.legs[0].usable = false;
  facts.legs[0].trouble = "other shapes";
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kUnmatched);
  EXPECT_EQ(Judge(facts).reason.detail, "other shapes");
  EXPECT_THAT(Judge(facts).legs, IsEmpty());
  facts.legs.clear();
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kUnmatched);
  EXPECT_EQ(Judge(facts).reason.kind, ReasonKind::kNoCommonLeg);
}

TEST_F(TensorJudgeTest, AWideBoundLeavesItOpenAndANanDoesNot) {
  TensorFacts facts = Facts(4e-2);
  facts.legs[0].noise.assign(3, PairFacts{Stats(0.5), {Stats(0.5)}});
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kNotCheckable);
  EXPECT_EQ(Judge(facts).reason.kind, ReasonKind::kBoundTooWide);
  EXPECT_THAT(Judge(facts).reason.numbers, ElementsAre(1));
  facts.legs[0].candidate.total.nonfinite_differ = 1;
  facts.legs[0].candidate.instances[1].stats.nonfinite_differ = 1;
  const TensorJudgement out = Judge(facts);
  EXPECT_EQ(out.verdict, TensorVerdict::kDiverged);
  EXPECT_TRUE(std::isinf(out.headroom));
  EXPECT_THAT(out.ranks, ElementsAre(1));
}

TEST_F(TensorJudgeTest, WhatAStepMadeIsLeftToTheNextIteration) {
  TensorFacts facts = Facts(4e-2);
  facts.id.role = Role::kParamUpdated;
  EXPECT_EQ(Judge(facts).reason.kind, ReasonKind::kAfterStep);
  EXPECT_TRUE(Judge(facts).excused);
  facts.id.role = Role::kOutput;
  EXPECT_EQ(Judge(facts, {0}).reason.kind, ReasonKind::kUnequalStart);
  EXPECT_TRUE(Judge(facts, {0}).excused);
  EXPECT_EQ(Judge(facts, {1}).verdict, TensorVerdict::kDiverged);
}

TEST_F(TensorJudgeTest, IntegersThatDifferAreCounted) {
  TensorFacts facts = Facts(4e-2);
  facts.exact = true;
  facts.id.role = Role::kInput;
  facts.dtype = DType::kI64;
  facts.legs[0].noise.clear();
  const TensorJudgement out = Judge(facts);
  EXPECT_EQ(out.verdict, TensorVerdict::kDiverged);
  EXPECT_EQ(out.reason.kind, ReasonKind::kElementsDiffer);
  EXPECT_THAT(out.reason.counts, ElementsAre(4096, 4096));
  EXPECT_THAT(out.ranks, ElementsAre(1));
}

TEST_F(TensorJudgeTest, ElementsOfWhichOnlyDigestsAreThereAreNotCounted) {
  TensorFacts facts = Facts(4e-2);
  facts.exact = true;
  facts.id.role = Role::kInput;
  facts.legs[0].noise.clear();
  facts.legs[0].candidate.fidelity = Fidelity::kDigest;
  facts.legs[0].candidate.total.mismatched = 1;
  const TensorJudgement out = Judge(facts);
  EXPECT_EQ(out.verdict, TensorVerdict::kDiverged);
  EXPECT_EQ(out.reason.kind, ReasonKind::kOtherDigest);
  EXPECT_EQ(ReasonWords(out.reason), "its digest is another one on rank 1");
  EXPECT_TRUE(std::isnan(out.legs[0].deciding_err()));
  EXPECT_TRUE(std::isinf(out.headroom));
  facts.legs[0].candidate.reordered = true;
  EXPECT_EQ(ReasonWords(Judge(facts).reason),
            "its digest is that of the same elements in another order on rank "
            "1");
}

TEST_F(TensorJudgeTest, WhatTheReferenceLacksOrShapesOtherwise) {
  TensorFacts facts = Facts(0);
  facts.candidate_shape = {4096};
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kDiverged);
  EXPECT_EQ(Judge(facts).reason.kind, ReasonKind::kShapeDiffers);
  facts.in_reference = false;
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kUnmatched);
  EXPECT_EQ(Judge(facts).reason.kind, ReasonKind::kNotInReference);
}

// A part may be as far off as the reference's own part is from its fp32 leg.
TEST_F(TensorJudgeTest, APartsBoundIsThatOfTheSamePart) {
  TensorFacts facts = Facts(0.5e-2);
  LegFacts& leg = facts.legs[0];
  leg.candidate.regions.resize(2);
  leg.candidate.instances[1] = {{1}, -1, Stats(4e-2), 1};
  for (PairFacts& noise : leg.noise) noise.regions.resize(2, Stats(1e-2));
  EXPECT_THAT(Judge(facts).ranks, ElementsAre(1));
  leg.candidate_fp32 = PairFacts{Stats(0), {Stats(0), Stats(0)}};
  leg.reference_fp32 = PairFacts{Stats(0), {Stats(0), Stats(4e-2)}};
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kWithin);
  leg.candidate_fp32->regions[1] = Stats(6e-2);
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kSuspect);
  leg.candidate_fp32->regions[1] = Stats(9e-2);
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kDiverged);
}

TEST_F(TensorJudgeTest, APartMayDifferByWhatTheSamePartDoesNotRepeat) {
  TensorFacts facts = Facts(0.5e-2);
  LegFacts& leg = facts.legs[0];
  leg.candidate.regions.resize(2);
  leg.candidate.instances[1] = {{1}, -1, Stats(4e-2), 1};
  for (PairFacts& noise : leg.noise) noise.regions.resize(2, Stats(1e-2));
  leg.repeat = PairFacts{Stats(1e-3), {Stats(0), Stats(1e-3)}};
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kDiverged);
  leg.repeat->regions[1] = Stats(4e-2);
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kWithin);
}

// Bits of copies differ, or they do not: no bound says by how much.
TEST_F(TensorJudgeTest, CopiesThatDifferAreOutWithoutABound) {
  TensorFacts facts = Facts(0.5e-2);
  facts.replicas.differing = 1;
  facts.replicas.differing_ranks = {0, 1};
  const TensorJudgement within = Judge(facts);
  EXPECT_EQ(within.verdict, TensorVerdict::kDiverged);
  EXPECT_TRUE(std::isinf(within.headroom));
  EXPECT_THAT(within.ranks, ElementsAre(0, 1));
  // What is out of its bound keeps its number and its ranks.
  facts.legs = Facts(4e-2).legs;
  const TensorJudgement out = Judge(facts);
  EXPECT_NEAR(out.headroom, 2, 1e-9);
  EXPECT_THAT(out.ranks, ElementsAre(1));
}

TEST_F(TensorJudgeTest, TheWorstLegDecides) {
  TensorFacts facts = Facts(4e-2);
  AddLeg("fp32", false, &facts);
  facts.legs[1].candidate.total = Stats(0.1e-2);
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kDiverged);
  EXPECT_EQ(Judge(facts).deciding_leg, 0);
}

TEST_F(TensorJudgeTest, AnIterationThatWasCutIsNoReasonForWhatIsWhole) {
  TensorFacts facts = Facts(0.5e-2);
  facts.complete = false;
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kWithin);
  EXPECT_TRUE(Judge(facts).reason.none());
}

// A model's input of which it makes no DTensor.
TEST_F(TensorJudgeTest, WhatWasPresumedAlikeAndIsNotLiesNobodyKnowsWhere) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  const auto writer = OpenRank(folder.path(), 0, 1);
  OrDie(
      writer->Note("presumed_alike", R"({"fqn":"","role":"input","arg":"x"})"));
  OrDie(writer->Note("presumed_alike", R"({"fqn":"fc","role":"?","arg":"x"})"));
  OrDie(writer->Close(true, ""));
  side_ = OrDie(Side::Open(folder.path(), {}));
  TensorFacts facts = Facts(4e-2);
  facts.id = {"", Role::kInput, 0, 0, "x", Pass::kForward};
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kDiverged) << "copies agree";
  facts.replicas.differing = facts.replicas.copies = 1;
  facts.replicas.worst_rel_err = 1;
  const TensorJudgement unknown = Judge(facts);
  EXPECT_EQ(unknown.verdict, TensorVerdict::kNotCheckable);
  EXPECT_EQ(unknown.reason.kind, ReasonKind::kNotAlike);
  EXPECT_TRUE(unknown.excused);
  EXPECT_FALSE(unknown.replicas_differ);
  facts.id.role = Role::kOutput;
  EXPECT_TRUE(Judge(facts).replicas_differ) << "nobody presumed that";
}

// Nothing is computed of a parameter.
TEST_F(TensorJudgeTest, ParametersMustBeEqual) {
  TensorFacts facts = Facts(1e-9);
  facts.id.role = Role::kParam;
  facts.legs[0].noise.clear();
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kDiverged);
  EXPECT_EQ(Judge(facts).reason.kind, ReasonKind::kElementsDiffer);
}

TEST_F(TensorJudgeTest, ZerosAreSaidOfFloatsThatAreThere) {
  TensorFacts facts = Facts(0);
  EXPECT_FALSE(Judge(facts).all_zero);
  facts.legs[0].candidate.total.sum_sq_ref = 0;
  EXPECT_TRUE(Judge(facts).all_zero);
  facts.exact = true;
  EXPECT_FALSE(Judge(facts).all_zero);
  facts.exact = false;
  facts.legs[0].candidate.total.count = 0;
  EXPECT_FALSE(Judge(facts).all_zero);
}

// A copy, say: noise goes through it without a trace.
TEST_F(TensorJudgeTest, OneElementIsJudgedWhereNoiseMovesNothing) {
  TensorFacts facts = Facts(1e-8);
  LegFacts& leg = facts.legs[0];
  leg.noise.assign(3, PairFacts{Stats(0), {Stats(0)}});
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kWithin);
  leg.candidate.total.max_elem = 0.5;
  leg.candidate.instances[1].stats.max_elem = 0.5;
  const TensorJudgement out = Judge(facts);
  EXPECT_EQ(out.verdict, TensorVerdict::kDiverged);
  EXPECT_EQ(out.deciding()->deciding()->statistic, Statistic::kElement);
  EXPECT_THAT(out.ranks, ElementsAre(1));
}

RepeatFacts Repeat(double err) { return {Stats(err)}; }

TEST_F(TensorJudgeTest, AReplayIsOneOfTheRunAsItWas) {
  TensorFacts facts = Facts(0.5e-2);
  AddLeg("isolated", true, &facts);
  facts.candidate_repeat = Repeat(4e-2);
  const TensorJudgement out = Judge(facts);
  EXPECT_EQ(out.verdict, TensorVerdict::kDiverged);
  EXPECT_EQ(out.isolated->verdict, TensorVerdict::kWithin);
}

// Nothing replaces what a teacher puts into the loss.
TEST_F(TensorJudgeTest, TheLossBesideOtherModelsIsNotJudgedAlone) {
  TensorFacts facts = Facts(0);
  AddLeg("isolated", true, &facts);
  facts.legs.back().candidate.total = Stats(4e-2);
  facts.id = {"", Role::kGradOutput, 0, 0, "0", Pass::kBackward};
  EXPECT_TRUE(Judge(facts).out_isolated());
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  const auto writer = OpenRank(folder.path(), 0, 1);
  OrDie(writer->Note("modules_beside", R"({"count":1,"classes":["Teacher"]})"));
  OrDie(writer->Close(true, ""));
  const Side beside = OrDie(Side::Open(folder.path(), {}));
  const TensorJudgement out = JudgeOf(beside, facts);
  EXPECT_FALSE(out.out_isolated());
  EXPECT_EQ(out.isolated->reason.kind, ReasonKind::kOfOtherModels);
  // A module inside is given what arrives at it.
  facts.id.fqn = "fc";
  EXPECT_TRUE(JudgeOf(beside, facts).out_isolated());
}

TEST_F(TensorJudgeTest, WithoutABoundAReplayIsNotJudged) {
  TensorFacts facts = Facts(0);
  facts.legs[0].noise.clear();
  facts.candidate_repeat = Repeat(4e-2);
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kBitwiseEqual);
}

// By what a replay differs, where the reference's noise says nothing.
TEST_F(TensorJudgeTest, CopiesWithoutABoundMayDifferByWhatIsNotRepeated) {
  TensorFacts facts = Facts(0);
  facts.candidate_repeat = Repeat(1e-6);
  facts.replicas.differing = facts.replicas.copies = 1;
  const auto differ = [&](double by) {
    facts.replicas.worst_rel_err = by;
    return Judge(facts).replicas_differ;
  };
  EXPECT_FALSE(differ(1e-2));
  facts.legs[0].noise.assign(3, PairFacts{Stats(0.5), {Stats(0.5)}});
  EXPECT_TRUE(differ(1e-2));
  facts.legs[0].noise.clear();
  EXPECT_TRUE(differ(1e-2));
  EXPECT_FALSE(differ(1e-6));
}

// Each rank's own where ranks hold other parts; copies are all of it.
TEST_F(TensorJudgeTest, PartsAreJudgedWhereThereAreSeveral) {
  const auto pieces = [this](const TensorFacts& facts) {
    const TensorJudgement out = Judge(facts);
    const auto& tests = out.legs.at(0).tests;
    return std::count_if(tests.begin(), tests.end(),
                         [](const ttrace::Test& test) {
                           return test.statistic == Statistic::kPiece;
                         });
  };
  TensorFacts facts = Facts(0.5e-2);
  EXPECT_EQ(pieces(facts), 0);
  LegFacts& leg = facts.legs[0];
  leg.candidate.regions.resize(2);
  leg.candidate.instances[1].region = 1;
  for (PairFacts& noise : leg.noise) noise.regions.resize(2, Stats(1e-2));
  EXPECT_EQ(pieces(facts), 2);
  for (PairFacts& noise : leg.noise) noise.total = Stats(0.5);
  EXPECT_EQ(pieces(facts), 0) << "nothing of it is checkable";
}

// A rank may make it of its own rows, honestly: who computes with it tells.
TEST_F(TensorJudgeTest, ABufferThatForwardsChangedIsNoFindingByItself) {
  TensorFacts facts = Facts(4e-2);
  facts.id = {"norm.mean", Role::kBuffer, 0, 0, "", Pass::kForward};
  facts.replicas.differing = 1;
  facts.replicas.differing_ranks = {1};
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kDiverged)
      << "what the run began with";
  facts.id.iteration = 1;
  TensorJudgement out = Judge(facts);
  EXPECT_EQ(out.verdict, TensorVerdict::kNotCheckable);
  EXPECT_TRUE(out.carried_out());
  EXPECT_TRUE(out.excused);
  EXPECT_FALSE(out.replicas_differ);
  EXPECT_NEAR(out.headroom, 2, 1e-9);
  EXPECT_THAT(out.ranks, ElementsAre(1));
  facts.legs = Facts(0.5e-2).legs;
  out = Judge(facts);
  EXPECT_EQ(out.verdict, TensorVerdict::kWithin);
  EXPECT_FALSE(out.carried_out());
  // Counts and masks are what they are.
  facts = Facts(0);
  facts.id = {"norm.mask", Role::kBuffer, 1, 0, "", Pass::kForward};
  facts.exact = true;
  facts.replicas.differing = 1;
  EXPECT_EQ(Judge(facts).verdict, TensorVerdict::kDiverged);
}

// Elements, parts and factors of what is zero but for rounding have no size.
TEST_F(TensorJudgeTest, OfASumWhoseTermsCancelTheNormAloneIsJudged) {
  TensorFacts arriving = Facts(0);
  arriving.id = {"fc", Role::kGradOutput, 0, 0, "0", Pass::kBackward};
  arriving.legs[0].candidate.total.sum_sq_ref = 1e12;
  TensorFacts bias = Facts(0.5);
  bias.id = {"fc.bias", Role::kGradReduced, 0, 0, "", Pass::kBackward};
  bias.vector = true;
  bias.legs[0].noise.assign(3, PairFacts{Stats(0.8), {Stats(0.8)}});
  bias.legs[0].candidate.total.max_elem = 0.5;
  const auto judge = [&](const std::vector<TensorFacts>& all) {
    const Expectations expectations(all, kRunRisk);
    const UnlikeDraws draws(&side_, side_, all);
    const SkippedSteps skipped(&side_, side_, {});
    return TensorJudge(&side_, side_, plans_, expectations, draws, skipped, {})
        .Judge(bias);
  };
  EXPECT_EQ(judge({bias}).verdict, TensorVerdict::kNotCheckable);
  const TensorJudgement out = judge({arriving, bias});
  EXPECT_EQ(out.verdict, TensorVerdict::kWithin);
  EXPECT_EQ(out.legs.at(0).tests.size(), 1u);
  bias.legs = Facts(1e3).legs;
  bias.legs[0].noise.assign(3, PairFacts{Stats(0.8), {Stats(0.8)}});
  EXPECT_EQ(judge({arriving, bias}).verdict, TensorVerdict::kDiverged);
}

}  // namespace
}  // namespace ttrace::judge_tensor_test
