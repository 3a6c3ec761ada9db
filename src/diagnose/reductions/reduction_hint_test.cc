#include "src/diagnose/reductions/reduction_hint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::reduction_hint_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A run on {dp 2, tp 2}, ranks 0 1 | 2 3: parameters `norm` (reduced over dp
// and tp) and `weight` (over dp), a module `fc` whose output and gradient of
// the input are sums over tp. Everything is communicated as it should be; tests
// take away, add and change.
class ReductionHintTest : public testing::Test {
 protected:
  ReductionHintTest() {
    for (int rank = 0; rank < 4; ++rank) {
      for (const char* name : {"norm", "weight"}) {
        const std::vector<std::string> over =
            std::string(name) == "norm" ? std::vector<std::string>{"dp", "tp"}
                                        : std::vector<std::string>{"dp"};
        Add(rank, {name, Role::kParam, 0, 0, "", Pass::kForward}, {4}, {});
        Add(rank, {name, Role::kGradReduced, 0, 0, "", Pass::kBackward}, {4},
            over);
      }
      for (int mb = 0; mb < 2; ++mb) {
        Add(rank, Output(), {2, 4}, {"tp"});
        Add(rank, GradInput(), {2, 4}, {"tp"});
        Reduce(rank, "forward", "fc", TpOf(rank), 8);
        Reduce(rank, "backward", "fc", TpOf(rank), 8);
      }
      // As gradients of all buckets over dp, and of norms over tp.
      Reduce(rank, "reduction", "", DpOf(rank), 8, {"norm", "weight"});
      Reduce(rank, "reduction", "", TpOf(rank), 4, {"norm"});
    }
  }

  static TensorId Output() {
    return {"fc", Role::kOutput, 0, 0, "0", Pass::kForward};
  }
  static TensorId GradInput() {
    return {"fc", Role::kGradInput, 0, 0, "x", Pass::kBackward};
  }
  static std::vector<int> TpOf(int rank) {
    return {rank / 2 * 2, rank / 2 * 2 + 1};
  }
  static std::vector<int> DpOf(int rank) { return {rank % 2, rank % 2 + 2}; }

  RecordFields& Add(int rank, const TensorId& id, const Shape& shape,
                    const std::vector<std::string>& reduced_over) {
    RecordFields record;
    record.rank = rank;
    record.id = id;
    record.leg = "real";
    record.local_shape = shape;
    record.reduced_over = reduced_over;
    records_.push_back(record);
    return records_.back();
  }

  void Reduce(int rank, const std::string& phase, const std::string& fqn,
              const std::vector<int>& members, int64_t elements,
              const std::vector<std::string>& parameters = {}) {
    Collective c;
    c.rank = rank;
    c.kind = "all_reduce";
    c.op = "sum";
    c.members = members;
    c.phase = phase;
    c.fqn = fqn;
    c.elements = elements;
    c.parameters = parameters;
    log_.seen.push_back(c);
  }

  template <typename Predicate>
  void Drop(Predicate predicate) {
    std::erase_if(log_.seen, predicate);
  }

  bool SumsWereMade(const TensorId& id) {
    sums_were_made_ = false;
    Hints(id);
    return sums_were_made_;
  }

  std::string WrongGroup(const TensorId& id) {
    Hints(id);
    return wrong_group_;
  }

  std::vector<std::string> Hints(const TensorId& id) {
    RecordTable table;
    std::map<TensorId, TensorPieces> tensors;
    for (const RecordFields& record : records_) {
      tensors[record.id].pieces.push_back(table.Append(record));
    }
    ReductionEvidence evidence;
    evidence.mesh = &mesh_;
    for (int rank = 0; rank < ranks_; ++rank) {
      evidence.coordinates[rank] = mesh_.dims.size() == 1
                                       ? Coordinate{rank}
                                       : Coordinate{rank / 2, rank % 2};
      if (complete_) log_.complete.insert({rank, 0});
    }
    evidence.tensors = &tensors;
    evidence.collectives = &log_;
    evidence.attributes = &attributes_;
    Culprit culprit;
    culprit.fqn = id.fqn;
    culprit.tensor = id;
    const ReductionHints hints(evidence);
    sums_were_made_ = hints.SumsWereMade(culprit);
    wrong_group_ = hints.WrongGroup(culprit);
    return hints.For(culprit);
  }

  std::vector<std::string> OfParameter(const std::string& fqn) {
    return Hints({fqn, Role::kGradReduced, 0, 0, "", Pass::kBackward});
  }

  static bool IsNormsOverTp(const Collective& c) {
    return c.parameters == std::vector<std::string>{"norm"};
  }
  static bool IsReduction(const Collective& c) {
    return c.phase == "reduction";
  }
  static bool IsBackward(const Collective& c) { return c.phase == "backward"; }

  DeviceMesh mesh_{{{"dp", 2}, {"tp", 2}}};
  std::deque<RecordFields> records_;
  CollectiveLog log_;
  std::vector<Attribute> attributes_;
  bool sums_were_made_ = false;
  std::string wrong_group_;
  bool complete_ = true;
  int ranks_ = 4;
};

TEST_F(ReductionHintTest, NothingIsSaidWhereAllReductionsAreAsNeeded) {
  EXPECT_THAT(OfParameter("norm"), IsEmpty());
  EXPECT_THAT(OfParameter("weight"), IsEmpty());
  EXPECT_THAT(Hints(Output()), IsEmpty());
  EXPECT_THAT(Hints(GradInput()), IsEmpty());
}

TEST_F(ReductionHintTest, AReductionThatWasNotMade) {
  Drop(IsNormsOverTp);
  attributes_.push_back(
      {"norm", "sequence_parallel", "False", "True", false, {0}});
  attributes_.push_back({"weight", "other", "1", "2", true, {3}});
  EXPECT_THAT(
      OfParameter("norm"),
      ElementsAre("reduction: 0 reductions over tp seen for 1 of 1 parameter "
                  "that need one (norm); attribute sequence_parallel is False, "
                  "expected True, on 1 of them"));
  // Weight shares norm's bucket, but that attribute is norm's alone.
  attributes_.pop_back();
  EXPECT_THAT(OfParameter("weight"), IsEmpty());
}

TEST_F(ReductionHintTest, AllReductionsOfAnIterationAreMissing) {
  Drop(IsReduction);
  EXPECT_THAT(
      OfParameter("norm"),
      ElementsAre(HasSubstr("0 reductions over dp seen for 2 of 2 parameters "
                            "that need one (norm, weight)"),
                  HasSubstr("0 reductions over tp seen for 1 of 1")));
}

TEST_F(ReductionHintTest, GradientsBeforeReductionTellWhatIsNeededToo) {
  // As with a distributed optimizer: no reduced gradients but culprits'.
  Drop(IsReduction);
  for (RecordFields& r : records_) {
    if (r.id.role != Role::kGradReduced || r.id.fqn != "weight") continue;
    r.id.role = Role::kGradLocal;
    r.reduced_over.clear();
    r.placements = {{"dp", Partial{}}};
  }
  EXPECT_THAT(OfParameter("norm"),
              ElementsAre(HasSubstr("over dp seen for 2 of 2"), testing::_));
}

TEST_F(ReductionHintTest, AReductionThatWasMadeTwice) {
  for (int rank = 0; rank < 4; ++rank) {
    Reduce(rank, "reduction", "", DpOf(rank), 8, {"weight"});
  }
  EXPECT_THAT(OfParameter("weight"),
              ElementsAre("reduction: 2 all_reduces over dp seen where 1 is "
                          "expected, for 1 of 2 parameters (weight)"));
  EXPECT_THAT(OfParameter("norm"), IsEmpty());
}

TEST_F(ReductionHintTest, OneGroupOfAllIsAsGoodAsOneForEachDimension) {
  Drop(IsReduction);
  for (int rank = 0; rank < 4; ++rank) {
    Reduce(rank, "reduction", "", {0, 1, 2, 3}, 4, {"norm"});
  }
  EXPECT_THAT(OfParameter("norm"), IsEmpty());
}

TEST_F(ReductionHintTest, ASumInTwoStagesIsOneSum) {
  mesh_ = {{{"dp", 4}}};
  Drop(IsReduction);
  for (int rank = 0; rank < 4; ++rank) {
    Reduce(rank, "reduction", "", TpOf(rank), 4, {"weight"});
  }
  EXPECT_THAT(OfParameter("weight"),
              ElementsAre("reduction: the all_reduce of weight is over ranks "
                          "{0, 1}, its terms are on ranks {0, 1, 2, 3}"));
  for (int rank = 0; rank < 4; ++rank) {
    Reduce(rank, "reduction", "", DpOf(rank), 4, {"weight"});
  }
  EXPECT_THAT(OfParameter("weight"), IsEmpty());
}

TEST_F(ReductionHintTest, ADistributedOptimizersRankHasTermsOfWhatOthersOwn) {
  mesh_ = {{{"dp", 4}}};
  Drop(IsReduction);
  // Ranks 0 and 1 own the weight and record what they reduced of it.
  std::erase_if(records_, [](const RecordFields& record) {
    return record.id.role == Role::kGradReduced && record.rank >= 2;
  });
  for (int rank = 0; rank < 4; ++rank) {
    Add(rank, {"weight", Role::kGradLocal, 0, 0, "", Pass::kBackward}, {4}, {});
    Reduce(rank, "reduction", "", {0, 1, 2, 3}, 8, {"weight"});
  }
  EXPECT_THAT(OfParameter("weight"), IsEmpty());
  for (Collective& c : log_.seen) {
    if (IsReduction(c)) c.members = TpOf(c.rank);
  }
  EXPECT_THAT(OfParameter("weight"),
              ElementsAre("reduction: the all_reduce of weight is over ranks "
                          "{0, 1}, its terms are on ranks {0, 1, 2, 3}"));
}

TEST_F(ReductionHintTest, AReductionOverOtherRanks) {
  Drop(IsReduction);
  for (int rank = 0; rank < 4; ++rank) {
    Reduce(rank, "reduction", "", TpOf(rank), 8, {"weight"});
  }
  EXPECT_THAT(OfParameter("weight"),
              ElementsAre("reduction: the all_reduce of weight is over ranks "
                          "{0, 1}, its terms are on ranks {0, 2}"));
}

TEST_F(ReductionHintTest, AReductionOverTooManyRanks) {
  Drop(IsReduction);
  for (int rank = 0; rank < 4; ++rank) {
    Reduce(rank, "reduction", "", {0, 1, 2, 3}, 8, {"weight"});
  }
  EXPECT_THAT(OfParameter("weight"),
              ElementsAre(AllOf(HasSubstr("over ranks {0, 1, 2, 3}"),
                                HasSubstr("on ranks {0, 2}"))));
}

TEST_F(ReductionHintTest, TheRightReductionsWithAWrongFactor) {
  // A bucket's attribute stands under the name of its first parameter.
  attributes_.push_back(
      {"norm", "gradient_scaling_factor", "1.0", "0.5", true, {0, 1}});
  EXPECT_THAT(
      OfParameter("weight"),
      ElementsAre("reduction: the gradient of weight was reduced once over dp, "
                  "as it has to be; attribute gradient_scaling_factor is 1.0, "
                  "expected 0.5"));
}

TEST_F(ReductionHintTest, AnUnnamedReductionMayBeTheMissingOne) {
  Drop(IsNormsOverTp);
  for (int rank = 0; rank < 4; ++rank) {
    Reduce(rank, "reduction", "", TpOf(rank), 4);
  }
  EXPECT_THAT(OfParameter("norm"), IsEmpty());
}

TEST_F(ReductionHintTest, AnUnnamedReductionThatIsTooSmallIsNot) {
  Drop(IsNormsOverTp);
  for (int rank = 0; rank < 4; ++rank) {
    Reduce(rank, "reduction", "", TpOf(rank), 3);
  }
  EXPECT_THAT(OfParameter("norm"), ElementsAre(HasSubstr("0 reductions")));
}

TEST_F(ReductionHintTest, ANormOfGradientsIsNoReductionOfThem) {
  Drop(IsNormsOverTp);
  for (int rank = 0; rank < 4; ++rank) {
    Reduce(rank, "optimizer", "", TpOf(rank), 4, {"norm"});
  }
  EXPECT_THAT(OfParameter("norm"), ElementsAre(HasSubstr("0 reductions")));
}

TEST_F(ReductionHintTest, AMaximumIsNoSum) {
  for (Collective& c : log_.seen) c.op = "max";
  EXPECT_THAT(OfParameter("weight"), ElementsAre(HasSubstr("0 reductions")));
}

TEST_F(ReductionHintTest, AStageWithoutTheWeightTakesPartInNoSum) {
  // Rank 2 has no copy of the weight: its term, a written zero, is no holder.
  std::erase_if(records_, [](const RecordFields& r) {
    return r.id.role == Role::kParam && r.id.fqn == "weight" && r.rank >= 2;
  });
  Drop(IsReduction);
  EXPECT_THAT(OfParameter("weight"), IsEmpty());
}

TEST_F(ReductionHintTest, SilenceWhereCollectivesAreNotAllKnown) {
  Drop(IsReduction);
  Drop(IsBackward);
  complete_ = false;
  EXPECT_THAT(OfParameter("norm"), IsEmpty());
  EXPECT_THAT(Hints(GradInput()), IsEmpty());
}

TEST_F(ReductionHintTest, SumsThatWereMadeAreKnownToBe) {
  EXPECT_TRUE(SumsWereMade(GradInput()));
  // A parameter's gradient is another question.
  EXPECT_FALSE(
      SumsWereMade({"norm", Role::kGradReduced, 0, 0, "", Pass::kBackward}));
  for (Collective& c : log_.seen) {
    if (IsBackward(c) && c.rank == 1) c.members = DpOf(c.rank);
  }
  EXPECT_FALSE(SumsWereMade(GradInput()));
}

TEST_F(ReductionHintTest, WithoutACompleteLogNoSumIsKnownToBeMade) {
  complete_ = false;
  EXPECT_FALSE(SumsWereMade(GradInput()));
}

TEST_F(ReductionHintTest, SumsThatOneRankDidNotMakeAreNotKnownToBe) {
  Drop([](const Collective& c) { return IsBackward(c) && c.rank == 1; });
  EXPECT_FALSE(SumsWereMade(GradInput()));
}

TEST_F(ReductionHintTest, SilenceWhereARankIsMissing) {
  Drop(IsReduction);
  ranks_ = 3;
  EXPECT_THAT(OfParameter("norm"), IsEmpty());
}

TEST_F(ReductionHintTest, SilenceWhereTheFrameworkReducesOutOfSight) {
  Drop(IsReduction);
  Drop(IsBackward);
  log_.not_seen = {{"reduction", "C++"}, {"backward", "compiled"}};
  EXPECT_THAT(OfParameter("norm"), IsEmpty());
  EXPECT_THAT(Hints(GradInput()), IsEmpty());
}

TEST_F(ReductionHintTest, AModulesSumThatWasNotMade) {
  Drop(IsBackward);
  EXPECT_THAT(Hints(GradInput()),
              ElementsAre("backward of fc: no all_reduce over tp seen on ranks "
                          "0, 1, 2, 3, where each holds a term of a sum"));
  EXPECT_THAT(Hints(Output()), IsEmpty());
}

TEST_F(ReductionHintTest, AValueThatIsCutIsSummedWhileItIsCut) {
  Drop(IsBackward);
  for (RecordFields& r : records_) {
    if (r.id.role == Role::kGradInput) r.placements = {{"tp", Shard{0}}};
  }
  EXPECT_THAT(Hints(GradInput()), ElementsAre(HasSubstr("no reduce_scatter")));
}

TEST_F(ReductionHintTest, AModulesSumThatWasMadeTwice) {
  for (int rank = 0; rank < 4; ++rank) {
    for (int mb = 0; mb < 2; ++mb) {
      Reduce(rank, "forward", "fc", TpOf(rank), 8);
    }
  }
  EXPECT_THAT(Hints(Output()),
              ElementsAre("forward of fc: 2 all_reduces over tp seen for each "
                          "value where 1 is expected"));
}

TEST_F(ReductionHintTest, SumsOfOtherSizesAreNotTheSameSumTwice) {
  for (int rank = 0; rank < 4; ++rank) {
    for (int mb = 0; mb < 2; ++mb) {
      Reduce(rank, "forward", "fc", TpOf(rank), 1);
    }
  }
  EXPECT_THAT(Hints(Output()), IsEmpty());
}

TEST_F(ReductionHintTest, AModulesSumOverOtherRanks) {
  for (Collective& c : log_.seen) {
    if (IsBackward(c)) c.members = DpOf(c.rank);
  }
  EXPECT_THAT(Hints(GradInput()),
              ElementsAre("backward of fc: the all_reduce is over ranks {0, "
                          "2}, the terms are on ranks {0, 1}"));
}

TEST_F(ReductionHintTest, AModulesSumOverTooManyRanks) {
  for (Collective& c : log_.seen) {
    if (IsBackward(c)) c.members = {0, 1, 2, 3};
  }
  EXPECT_THAT(Hints(GradInput()),
              ElementsAre("backward of fc: the all_reduce is over ranks {0, 1, "
                          "2, 3}, the terms are on ranks {0, 1}"));
  // A count of tokens, say, may well be summed over all.
  for (Collective& c : log_.seen) {
    if (!IsBackward(c)) continue;
    c.elements = 1;
  }
  EXPECT_EQ(WrongGroup(GradInput()), "");
}

TEST_F(ReductionHintTest, OneOfAModulesSumsOverOtherRanks) {
  const auto first =
      std::find_if(log_.seen.begin(), log_.seen.end(), IsBackward);
  ASSERT_NE(first, log_.seen.end());
  EXPECT_EQ(WrongGroup(GradInput()), "");
  first->members = DpOf(first->rank);
  EXPECT_THAT(WrongGroup(GradInput()),
              HasSubstr("one all_reduce is over ranks {0, 2}, the terms are on "
                        "ranks {0, 1}"));
  // Beside all that are needed, one more is no evidence.
  Reduce(first->rank, "backward", "fc", TpOf(first->rank), 8);
  EXPECT_EQ(WrongGroup(GradInput()), "");
}

TEST_F(ReductionHintTest, ARingMayCarryTheSum) {
  Drop(IsBackward);
  for (int rank = 0; rank < 4; ++rank) {
    Reduce(rank, "backward", "fc", TpOf(rank), 8);
    log_.seen.back().kind = "send";
    log_.seen.back().op = "";
  }
  EXPECT_THAT(Hints(GradInput()), IsEmpty());
}

TEST_F(ReductionHintTest, AContainerMayMakeItsChildsSum) {
  Drop(IsBackward);
  for (int rank = 0; rank < 4; ++rank) {
    Reduce(rank, "backward", "", TpOf(rank), 8);
  }
  EXPECT_THAT(Hints(GradInput()), IsEmpty());
}

TEST_F(ReductionHintTest, SilenceAlongADimensionWhoseTrafficIsNeverSeen) {
  Drop([](const Collective& c) { return !c.fqn.empty(); });
  EXPECT_THAT(Hints(GradInput()), IsEmpty());
  EXPECT_THAT(Hints(Output()), IsEmpty());
}

}  // namespace
}  // namespace ttrace::reduction_hint_test
