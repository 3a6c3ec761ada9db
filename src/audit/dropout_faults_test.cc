#include "src/audit/dropout_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace::dropout_faults_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two data-parallel groups of two tensor-parallel ranks.
RanksInMesh FourRanks() {
  return {{{{"dp", 2}, {"tp", 2}}}, {{0, 0}, {0, 1}, {1, 0}, {1, 1}}};
}

// A mask of 1,000 values with p = 0.1: 286 bits.
DropoutMask Mask(int rank, const std::string& input, const std::string& mask,
                 const std::string& fqn = "layers.0", int micro_batch = 0,
                 int iteration = 0) {
  DropoutMask out;
  out.rank = rank;
  out.iteration = iteration;
  out.fqn = fqn;
  out.micro_batch = micro_batch;
  out.p = 0.1;
  out.elements = 1000;
  out.input = input;
  out.mask = mask;
  // Samples that tell inputs apart as their digests do.
  for (int i = 0; i < 16; ++i) {
    out.sample.push_back(static_cast<double>(
        std::hash<std::string>{}(input + std::to_string(i)) % 1000));
  }
  return out;
}

DropoutFaults Find(std::vector<DropoutMask> masks, bool spoilt = false) {
  DropoutFacts facts;
  facts.active = true;
  facts.masks = std::move(masks);
  return FindDropoutFaults(facts, FourRanks(), spoilt);
}

std::string Evidence(const DropoutFaults& found) {
  if (found.culprits.size() != 1) return "not one culprit";
  EXPECT_EQ(found.culprits[0].classes.front().bug_class,
            BugClass::kDropoutMasks);
  return found.culprits[0].classes.front().evidence;
}

TEST(DropoutFaults, ACorrectRun) {
  EXPECT_THAT(Find({
                       Mask(0, "a", "m"),
                       Mask(1, "a", "m"),  // a copy
                       Mask(2, "b", "n", "layers.0", 1),
                       Mask(3, "b", "n", "layers.0", 1),
                       Mask(0, "c", "o", "layers.1"),
                       Mask(0, "d", "q", "layers.0", 2),
                       Mask(0, "a", "r", "layers.0", 0, 1),
                       Mask(0, "e", "s", "attention"),  // shards
                       Mask(1, "f", "t", "attention"),
                   })
                  .culprits,
              IsEmpty());
}

TEST(DropoutFaults, CopiesWithOtherMasks) {
  const DropoutFaults found = Find({Mask(0, "a", "m"), Mask(1, "a", "n")});
  EXPECT_THAT(Evidence(found),
              HasSubstr("ranks 0 and 1 hold the same input of a dropout in "
                        "layers.0 and drop different parts of it: 1 of 2"));
  EXPECT_THAT(found.culprits[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(found.culprits[0].direction, Direction::kForward);
}

TEST(DropoutFaults, EqualInputsThatRepeatWithinARankAreNoCopies) {
  DropoutMask a = Mask(0, "uniform", "m");
  DropoutMask b = Mask(1, "uniform", "n");
  a.repeats = b.repeats = true;
  EXPECT_THAT(Find({a, b}).culprits, IsEmpty());
}

TEST(DropoutFaults, OneMaskOnDataParallelRanks) {
  const DropoutFaults found = Find({Mask(0, "a", "m"), Mask(1, "a", "m"),
                                    Mask(2, "b", "m", "layers.0", 1),
                                    Mask(3, "b", "m", "layers.0", 1)});
  ASSERT_FALSE(found.culprits.empty());
  EXPECT_THAT(found.culprits[0].classes.front().evidence,
              HasSubstr("ranks 0 and 2 (apart in dp) have different inputs"));
}

TEST(DropoutFaults, WhatAFrameworkIsKnownToDoIsANote) {
  DropoutFacts facts;
  facts.masks = {Mask(0, "a", "m"), Mask(2, "b", "m", "layers.0", 1)};
  facts.alike = {"cp", "dp"};
  facts.alike_why = "it seeds data-parallel ranks alike";
  const DropoutFaults found = FindDropoutFaults(facts, FourRanks(), false);
  EXPECT_THAT(found.culprits, IsEmpty());
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("seeds data-parallel ranks")));
}

TEST(DropoutFaults, WhatIsKnownOfDataParallelRanksHoldsForTheirCopies) {
  DropoutFacts facts;
  facts.alike = {"dp"};
  facts.masks = {Mask(0, "a", "m"), Mask(1, "a", "m"),
                 Mask(2, "b", "m", "layers.0", 1),
                 Mask(3, "b", "m", "layers.0", 1)};
  const DropoutFaults found = FindDropoutFaults(facts, FourRanks(), false);
  EXPECT_THAT(found.culprits, IsEmpty());
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("(apart in dp)")));
  // Not for shards.
  facts.masks[1].input = "c";
  facts.masks[3].input = "d";
  EXPECT_FALSE(FindDropoutFaults(facts, FourRanks(), false).culprits.empty());
}

TEST(DropoutFaults, OneMaskOnShards) {
  EXPECT_THAT(Evidence(Find({Mask(0, "a", "m"), Mask(1, "b", "m")})),
              HasSubstr("(apart in tp)"));
  // Where the forward is wrong anyway these may be copies.
  EXPECT_THAT(Find({Mask(0, "a", "m"), Mask(1, "b", "m")}, true).culprits,
              IsEmpty());
  // Other places hold other values all the same.
  EXPECT_THAT(
      Evidence(Find({Mask(0, "a", "m"), Mask(0, "b", "m", "layers.1")}, true)),
      HasSubstr("in layers.0 and dropout 0 in layers.1"));
  // Where a rank is that left no trace is not known.
  EXPECT_THAT(Evidence(Find({Mask(0, "a", "m"), Mask(7, "b", "m")})),
              HasSubstr("ranks 0 and 7 have different inputs"));
}

TEST(DropoutFaults, AFewPlacesStandForAll) {
  std::vector<DropoutMask> masks;
  for (int layer = 0; layer < 8; ++layer) {
    const std::string name = std::to_string(layer);
    masks.push_back(Mask(0, name, "m", "layers." + name));
  }
  const DropoutFaults found = Find(masks);
  ASSERT_EQ(found.culprits.size(), 1);
  EXPECT_EQ(found.culprits[0].affected.count, 8);
  EXPECT_EQ(found.culprits[0].affected.examples.size(), 5);
}

TEST(DropoutFaults, NearCopiesAreNeither) {
  DropoutMask a = Mask(0, "a", "m");
  DropoutMask b = a;
  b.rank = 1;
  b.input = "a, rounded";
  for (double& value : b.sample) value *= 1.001;
  EXPECT_THAT(Find({a, b}).culprits, IsEmpty());
  b.mask = "n";
  EXPECT_THAT(Find({a, b}).culprits, IsEmpty());
}

TEST(DropoutFaults, WhatCannotBeToldApartIsNoFinding) {
  // Samples of other sizes, as of tensors of other shapes.
  DropoutMask a = Mask(0, "a", "m");
  const DropoutMask b = Mask(1, "b", "m");
  a.sample.resize(8);
  EXPECT_THAT(Find({a, b}).culprits, IsEmpty());
  // One value may be dropped alike wherever it is dropped.
  EXPECT_THAT(Find({Mask(0, "a", "m"), Mask(0, "a", "m", "layers.1")}).culprits,
              IsEmpty());
}

TEST(DropoutFaults, OnlyTheIterationsAskedForAreAudited) {
  DropoutFacts facts;
  facts.masks = {Mask(0, "a", "m", "layers.0", 0, 1),
                 Mask(1, "a", "n", "layers.0", 0, 1)};
  const auto culprits = [&](int iteration) {
    return FindDropoutFaults(facts, FourRanks(), false,
                             IterationRange{iteration, iteration + 1})
        .culprits.size();
  };
  EXPECT_EQ(culprits(0), 0);
  EXPECT_EQ(culprits(1), 1);
}

TEST(DropoutFaults, NotesThatCannotBeReadAreSaidToBeIgnored) {
  DropoutFacts facts;
  EXPECT_THAT(FindDropoutFaults(facts, FourRanks(), false).notes, IsEmpty());
  facts.malformed = 2;
  EXPECT_THAT(FindDropoutFaults(facts, FourRanks(), false).notes,
              ElementsAre(HasSubstr("2 notes about dropout")));
}

TEST(DropoutFaults, OtherPlacesHoldNoCopiesHoweverAlikeTheirInputs) {
  DropoutMask a = Mask(0, "a", "m", "attention");
  DropoutMask b = a;
  b.input = "as uniform as the other";
  for (double& value : b.sample) value *= 1.001;
  EXPECT_THAT(Find({a, b}).culprits, IsEmpty());
  DropoutMask other = b;
  other.fqn = "layers.1.attention";
  EXPECT_THAT(Evidence(Find({a, other})), HasSubstr("have the same mask"));
  other = b;
  other.micro_batch = 1;
  EXPECT_THAT(Evidence(Find({a, other})), HasSubstr("micro-batches 0 and 1"));
  other = b;
  other.iteration = 1;
  EXPECT_THAT(Evidence(Find({a, other})), HasSubstr("iterations 0 and 1"));
}

TEST(DropoutFaults, OneMaskForLayersMicroBatchesAndIterations) {
  EXPECT_THAT(
      Evidence(Find({Mask(0, "a", "m"), Mask(0, "b", "m", "layers.1")})),
      HasSubstr("in layers.0 and dropout 0 in layers.1"));
  EXPECT_THAT(
      Evidence(Find({Mask(0, "a", "m"), Mask(0, "b", "m", "layers.0", 2)})),
      HasSubstr("micro-batches 0 and 2 of rank 0"));
  EXPECT_THAT(
      Evidence(Find({Mask(0, "a", "m"), Mask(0, "b", "m", "layers.0", 0, 1)})),
      HasSubstr("iterations 0 and 1"));
}

TEST(DropoutFaults, ARecomputedForwardHasTheMaskOfTheForward) {
  DropoutMask again = Mask(0, "a", "m");
  again.recompute = true;
  EXPECT_THAT(Find({Mask(0, "a", "m"), again}).culprits, IsEmpty());
  // Also where what it works on was recomputed to something else.
  DropoutMask other = Mask(0, "b", "m");
  other.recompute = true;
  EXPECT_THAT(Find({Mask(0, "a", "m"), other}).culprits, IsEmpty());
  again.mask = "n";
  EXPECT_THAT(Evidence(Find({Mask(0, "a", "m"), again})),
              HasSubstr("the recomputed forward of layers.0"));
}

TEST(DropoutFaults, SmallMasksAgreeByChance) {
  // 220 values with p = 0.1 are 63 bits.
  DropoutMask a = Mask(0, "a", "m");
  DropoutMask b = Mask(0, "b", "m", "layers.1");
  a.elements = b.elements = 220;
  EXPECT_THAT(Find({a, b}).culprits, IsEmpty());
  a.elements = b.elements = 230;
  EXPECT_EQ(Find({a, b}).culprits.size(), 1);
}

std::string Note1(const std::string& extra) {
  return R"({"iteration":0,"fqn":"a","call":0,"micro_batch":0,"pass":"forward",)"
         R"("shape":[4],"p":0.5,"elements":4,"input":"i","mask":"m",)"
         R"("repeats":false)" +
         extra + "}";
}

TEST(ReadDropout, NotesAreReadAndStrangeOnesCounted) {
  const DropoutFacts facts =
      ReadDropout({{0, "dropout", R"({"p_max":0.1,"calls":3,"off":true})"},
                   {1, "dropout",
                    R"({"p_max":0.2,"calls":3,"off":true,)"
                    R"("seeded_alike":{"dims":["dp"],"why":"because"}})"},
                   {0, "dropout_mask", Note1(R"(,"sample":[1,2])")},
                   {0, "dropout_mask", Note1("")},
                   {0, "dropout_mask", Note1(R"(,"sample":["x"])")},
                   {0, "dropout_mask", "7"},
                   {0, "dropout", R"({"p_max":"x"})"}});
  EXPECT_TRUE(facts.active);
  EXPECT_TRUE(facts.off);
  EXPECT_EQ(facts.p_max, 0.2);
  EXPECT_THAT(facts.alike, ElementsAre("dp"));
  EXPECT_EQ(facts.alike_why, "because");
  ASSERT_EQ(facts.masks.size(), 1);
  EXPECT_THAT(facts.masks[0].sample, ElementsAre(1, 2));
  EXPECT_EQ(facts.malformed, 4);
}

TEST(DropoutPreventsComparison, UnlessItIsOffOnBothSides) {
  const DropoutFacts none;
  DropoutFacts on;
  on.active = true;
  on.p_max = 0.1;
  DropoutFacts off = on;
  off.off = true;
  EXPECT_EQ(DropoutIsOff(none), "");
  EXPECT_EQ(DropoutIsOff(on), "");
  EXPECT_THAT(DropoutIsOff(off), HasSubstr("(p up to 0.1) was switched off"));
  EXPECT_EQ(DropoutPreventsComparison(none, none), "");
  EXPECT_EQ(DropoutPreventsComparison(off, off), "");
  EXPECT_EQ(DropoutPreventsComparison(on, off),
            "the reference ran with dropout (p 0.1), whose masks differ "
            "between topologies: record it again with --dropout off");
  EXPECT_THAT(DropoutPreventsComparison(off, on), HasSubstr("the candidate"));
  EXPECT_THAT(DropoutPreventsComparison(on, on), HasSubstr("both sides"));
}

DropoutMask WithP(DropoutMask mask, double p) {
  mask.p = p;
  return mask;
}

TEST(DropoutFaults, AnotherProbabilityInOnePlace) {
  DropoutFacts reference;
  reference.masks = {Mask(0, "a", "m"), Mask(0, "b", "n", "layers.1"),
                     WithP(Mask(0, "c", "o", "layers.2"), 0.3)};
  DropoutFacts candidate;
  candidate.masks = {Mask(0, "a", "x"),
                     WithP(Mask(1, "b", "y", "layers.1"), 0.2),
                     WithP(Mask(0, "c", "z", "layers.2"), 0.3)};
  const DropoutFaults found = CompareProbabilities(reference, candidate);
  ASSERT_EQ(found.culprits.size(), 1);
  const Culprit& culprit = found.culprits.front();
  EXPECT_EQ(culprit.fqn, "layers.1");
  EXPECT_THAT(culprit.ranks, ElementsAre(1));
  EXPECT_EQ(culprit.classes.front().bug_class, BugClass::kOtherHyperparameters);
  EXPECT_EQ(
      culprit.classes.front().evidence,
      "dropout drops with probability 0.2 where the reference has 0.1, in "
      "1 of 3 modules (iteration 0)");
  EXPECT_THAT(
      CompareProbabilities(reference, candidate, IterationRange{1, 2}).culprits,
      IsEmpty());
}

TEST(DropoutFaults, EvaluationModeOnOneSideDropsNothing) {
  DropoutFacts trains;
  trains.masks = {Mask(0, "a", "m")};
  DropoutFacts evaluates;
  evaluates.masks = {WithP(Mask(0, "", ""), 0)};
  const auto evidence = [](const DropoutFaults& found) {
    return found.culprits.empty()
               ? ""
               : found.culprits.front().classes.front().evidence;
  };
  EXPECT_THAT(
      evidence(CompareProbabilities(trains, evaluates)),
      HasSubstr("dropout drops nothing (its probability is 0, or it is in "
                "evaluation mode) where the reference drops with "
                "probability 0.1, in 1 of 1 modules"));
  EXPECT_THAT(evidence(CompareProbabilities(evaluates, trains)),
              HasSubstr("where the reference drops nothing"));
  EXPECT_EQ(evidence(CompareProbabilities(evaluates, evaluates)), "");
  // They drew no masks that could be equal.
  evaluates.masks.push_back(WithP(Mask(0, "", "", "layers.1"), 0));
  EXPECT_THAT(FindDropoutFaults(evaluates, FourRanks(), false).culprits,
              IsEmpty());
  EXPECT_THAT(
      DropoutIsOff({.active = true, .off = true, .masks = evaluates.masks}),
      HasSubstr("; 0 masks"));
}

TEST(DropoutFaults, ACallOfOneRunAloneIsNoFault) {
  DropoutFacts reference;
  reference.masks = {Mask(0, "a", "m")};
  EXPECT_THAT(CompareProbabilities(reference, {}).culprits, IsEmpty());
  EXPECT_THAT(CompareProbabilities({}, reference).culprits, IsEmpty());
}

}  // namespace
}  // namespace ttrace::dropout_faults_test
