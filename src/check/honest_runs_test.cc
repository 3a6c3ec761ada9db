// Runs with nothing wrong in them, each of a kind that has been accused once.
// What cannot be judged is said; nobody is named for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "src/check/testing/check_fixture.h"
#include "src/judge/reason_words.h"
#include "src/trace/format.h"
#include "src/trace/reader.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::honest_runs_test {
namespace {

using testing::Contains;
using testing::HasSubstr;

class HonestRunTest : public CheckTest {
 protected:
  void ExpectOpen(const CheckResult& result, const std::string& words) {
    EXPECT_EQ(result.verdict, Verdict::kInconclusive) << result.reason;
    EXPECT_TRUE(result.culprits.empty());
    EXPECT_THAT(result.reason, HasSubstr(words));
  }

  void ExpectWithin(const CheckResult& result) {
    EXPECT_TRUE(result.verdict == Verdict::kWithin ||
                result.verdict == Verdict::kBitwiseEqual)
        << result.reason;
    EXPECT_TRUE(result.culprits.empty());
  }
};

// The optimizer's report of a norm that the framework's primitive gave.
class ReportedNormTest : public HonestRunTest {
 protected:
  void SetUp() override {
    HonestRunTest::SetUp();
    const SyntheticTensor norm = {
        "", Role::kGradNorm, "", Pass::kOptimizer, {1, 1}, {}, -1, {}};
    for (SyntheticRun* run : {&reference_, &candidate_}) {
      run->extra = {norm};
    }
    candidate_.gradient_norms = [this](int rank) {
      return R"({"iteration":0,"norms":{"fc.weight":)" +
             std::to_string(loss_ * RankNorm(rank % 2) * loss_scale_) + "}}";
    };
    candidate_.fault = [this](const SyntheticTensor& t, int, const Leg&,
                              int64_t, float* value) {
      if (t.role == Role::kGradNorm) {
        *value = static_cast<float>(wrong_ * loss_ *
                                    std::hypot(RankNorm(0), RankNorm(1)));
      }
      if (t.role == Role::kGradLocal || t.role == Role::kGradReduced) {
        *value *= static_cast<float>(loss_scale_);
      }
    };
  }

  // Of the half of fc's gradient that a rank of two holds.
  static double RankNorm(int rank) {
    const SyntheticTensor gradient = {
        "fc.weight", Role::kGradReduced, "", Pass::kBackward, {16, 32}, {}, -1,
        {}};
    double sum = 0;
    for (int64_t i = rank * 8 * 32; i < (rank + 1) * 8 * 32; ++i) {
      const double value = SyntheticRun::Value(gradient, i);
      sum += value * value;
    }
    return std::sqrt(sum);
  }

  double loss_ = 1;        // what the primitive gives, over the exact norm
  double wrong_ = 1;       // what is reported, over what the primitive gives
  double loss_scale_ = 1;  // still in the recorded gradients
};

// torch sums the squares of 8 x 10^6 elements too low by 2 x 10^-4.
TEST_F(ReportedNormTest, WhatTheLibraryLosesIsNoFault) {
  for (const double loss : {1 - 1.0e-5, 1 - 2.1e-4, 1 - 3.9e-3}) {
    loss_ = loss;
    ExpectWithin(CheckAgain());
    ExpectWithin(CheckWithoutReference());
  }
  // The same loss that the primitive does not have.
  wrong_ = 1 - 2.1e-4;
  loss_ = 1;
  const CheckResult result = CheckAgain();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(Letters(result.culprits.front()).front(), "G");
}

TEST_F(ReportedNormTest, ANormInBf16IsRoundedToBf16) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->extra.front().dtype = DType::kBF16;
  }
  wrong_ = 1 - 1.9e-3;
  ExpectWithin(CheckAgain());
  wrong_ = 0.9;
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
}

// As gradients of norms under sequence parallelism: what a rank holds of one
// says nothing of its norm, though capture asked for that.
TEST_F(ReportedNormTest, TermsOfAPendingSumCountAsTheirSum) {
  const SyntheticTensor pending = {
      "norm.weight", Role::kGradReduced, "", Pass::kBackward, {16}, {}, -1, {}};
  double square = 0;
  for (int64_t i = 0; i < 16; ++i) {
    square += std::pow(SyntheticRun::Value(pending, i), 2);
  }
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->extra.push_back(pending);
    run->extra.back().placements = {{"tp", Partial{}}};
  }
  candidate_.gradient_norms = [&](int rank) {
    return R"({"iteration":0,"norms":{"norm.weight":0.01,"fc.weight":)" +
           std::to_string(RankNorm(rank % 2)) + "}}";
  };
  const auto report = candidate_.fault;
  candidate_.fault = [&](const SyntheticTensor& t, int rank, const Leg& leg,
                         int64_t i, float* value) {
    report(t, rank, leg, i, value);
    if (t.fqn == pending.fqn) *value /= 2;  // each of two ranks
    if (t.role == Role::kGradNorm) {
      *value = static_cast<float>(std::hypot(*value, std::sqrt(square)));
    }
  };
  const CheckResult result = CheckAgain();
  ExpectWithin(result);
  EXPECT_TRUE(Find(result, "", Role::kGradNorm).reason.none());
  wrong_ = 1 - 1e-3;
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
}

TEST_F(ReportedNormTest, GradientsMayHoldALossScale) {
  loss_scale_ = 1024;
  candidate_.scale_of_gradients = {1, 1024};
  const CheckResult result = Check();
  ExpectWithin(result);
  EXPECT_TRUE(Find(result, "", Role::kGradNorm).reason.none());
}

TEST_F(ReportedNormTest, CopiesOfAGradientCountOnce) {
  candidate_.mesh = {{"dp", 2}, {"tp", 2}};
  ExpectWithin(Check());
}

TEST_F(ReportedNormTest, OfGradientsThatAreNotRecordedIsNotJudged) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->omit = [](const SyntheticTensor& t, int, const Leg&, int) {
      return t.role == Role::kGradReduced;
    };
  }
  const CheckResult result = Check();
  ExpectWithin(result);
  EXPECT_EQ(Find(result, "", Role::kGradNorm).verdict,
            TensorVerdict::kNotCheckable);
}

// Others may be in the norm.
TEST_F(ReportedNormTest, OfSelectedGradientsIsNotJudged) {
  wrong_ = 2;
  candidate_.select = "fqn=*fc*";
  const CheckResult result = Check();
  ExpectWithin(result);
  EXPECT_EQ(Find(result, "", Role::kGradNorm).verdict,
            TensorVerdict::kNotCheckable);
}

TEST_F(ReportedNormTest, OfAGradientThatLacksATermIsNotJudged) {
  candidate_.mesh = {{"dp", 2}, {"tp", 2}};
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->extra.push_back({"norm.weight",
                          Role::kGradReduced,
                          "",
                          Pass::kBackward,
                          {1, 32},
                          {{"dp", Partial{}}},
                          -1,
                          {}});
  }
  candidate_.omit = [](const SyntheticTensor& t, int rank, const Leg&, int) {
    return t.fqn == "norm.weight" && rank >= 2;
  };
  const CheckResult result = Check();
  ExpectOpen(result, "a sum over 2 ranks has only 1 terms");
  EXPECT_EQ(Find(result, "", Role::kGradNorm).verdict,
            TensorVerdict::kNotCheckable);
}

TEST_F(ReportedNormTest, OfADamagedGradientIsNotJudged) {
  Check();
  for (const Role role : {Role::kGradReduced, Role::kGradNorm}) {
    std::filesystem::remove_all(Path("cand"));
    candidate_.Write(Path("cand"));
    const auto opened = OrDie(Trace::Open(Path("cand")));
    const RecordTable& records = opened->records();
    const auto record =
        std::find_if(records.begin(), records.end(), [role](const Record& r) {
          return r.id().role == role && r.rank() == 1;
        });
    ASSERT_NE(record, records.end());
    SetFileByte(Path("cand") + "/" + RankFolderName({1, 0}) + "/" +
                    SegmentFileName((*record).extent().segment),
                static_cast<size_t>((*record).extent().offset), 'x');
    const TensorJudgement norm = Find(Check(), "", Role::kGradNorm);
    EXPECT_EQ(norm.verdict, TensorVerdict::kNotCheckable);
    EXPECT_EQ(norm.reason.kind, ReasonKind::kDamaged);
  }
}

// The error of each test that is made is a part of the risk of the run.
TEST_F(ReportedNormTest, IsNotComparedWithThatOfTheReference) {
  const int64_t tests = Check().tests;
  reference_.extra = candidate_.extra = {};
  EXPECT_EQ(CheckAgain().tests, tests);
}

// Of an iteration that a rank did not end gradients may be missing, and of a
// rank whose capture never started all of them are.
TEST_F(ReportedNormTest, OfAnIterationThatWasCutIsNotJudged) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->iterations = 2;
    run->extra.push_back({"norm.weight",
                          Role::kGradReduced,
                          "",
                          Pass::kBackward,
                          {1, 32},
                          {},
                          -1,
                          {}});
  }
  // Too small to count in the norm.
  const auto before = candidate_.fault;
  const auto tiny = [](const SyntheticTensor& t, float* value) {
    if (t.fqn == "norm.weight") *value *= 1e-9f;
  };
  reference_.fault = [=](const SyntheticTensor& t, int, const Leg&, int64_t,
                         float* value) { tiny(t, value); };
  candidate_.fault = [=](const SyntheticTensor& t, int rank, const Leg& leg,
                         int64_t index, float* value) {
    before(t, rank, leg, index, value);
    tiny(t, value);
  };
  candidate_.stopped_ranks = {1};
  candidate_.stopped_in = 1;
  // What rank 1 was about to write when its capture stopped.
  std::vector<std::function<bool(const SyntheticTensor&, int)>> lost = {
      [](const SyntheticTensor& t, int rank) {
        return rank == 1 && t.role == Role::kGradReduced;
      },
      [](const SyntheticTensor& t, int) { return t.fqn == "norm.weight"; },
      [](const SyntheticTensor&, int rank) { return rank == 1; },
  };
  for (const auto& is_lost : lost) {
    candidate_.omit = [=](const SyntheticTensor& t, int rank, const Leg&,
                          int iteration) {
      return iteration == 1 && is_lost(t, rank);
    };
    ExpectOpen(CheckAgain(), "the trace of rank 1 is incomplete");
    ExpectOpen(CheckWithoutReference(), "the trace of rank 1 is incomplete");
  }
  candidate_.stopped_ranks = {};
  candidate_.omit = nullptr;
  candidate_.omit_ranks = {1};
  ExpectOpen(CheckAgain(), "1 of 2 ranks left no trace (rank 1)");
}

TEST_F(HonestRunTest, MasksThatCannotMatchAreSaid) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->notes = {{"dropout", R"({"p_max":0.1,"calls":4,"off":false})"}};
  }
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&,
                        int64_t index, float* value) {
    if (t.role == Role::kOutput) *value *= index % 10 == 0 ? 0.0f : 1.1f;
  };
  ExpectOpen(Check(), "--dropout off");
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->notes = {{"dropout", R"({"p_max":0.1,"calls":4,"off":true})"}};
  }
  candidate_.fault = nullptr;
  const CheckResult off = CheckAgain();
  ExpectWithin(off);
  EXPECT_THAT(Notes(off), Contains(HasSubstr("was switched off")));
}

// Its rows take part in the softmax: another function, not a wrong one.
TEST_F(HonestRunTest, APaddedVocabularyIsNamedThoughShapesDiffer) {
  const auto with_vocabulary = [](int64_t size, SyntheticRun* run) {
    const SyntheticTensor logits = {"head",
                                    Role::kOutput,
                                    "0",
                                    Pass::kForward,
                                    {SyntheticRun::kRows, size},
                                    {{"tp", Shard{1}}},
                                    0,
                                    {}};
    SyntheticTensor weight = {
        "head.weight", Role::kParam,       "", Pass::kForward,
        {size, 4},     {{"tp", Shard{0}}}, -1, {}};
    run->extra = {weight, logits};
    weight.role = Role::kGradReduced;
    weight.pass = Pass::kBackward;
    run->extra.push_back(weight);
    run->notes = {
        {"computation", R"({"name":"padded_vocab_size","value":)" +
                            std::to_string(size) +
                            R"(,"option":"--make-vocab-size-divisible-by"})"}};
  };
  with_vocabulary(64, &reference_);
  with_vocabulary(128, &candidate_);
  const CheckResult result = Check();
  ExpectOpen(result, "padded_vocab_size is 64 in the reference and 128");
  EXPECT_THAT(result.reason, HasSubstr("--make-vocab-size-divisible-by"));
}

// A router's choice: rounding moves tokens between experts of like scores.
TEST_F(HonestRunTest, AnIntegerMayFlipWhereNoiseLegsFlipSeveral) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->extra = {{"router",
                   Role::kOutput,
                   "0",
                   Pass::kForward,
                   {SyntheticRun::kRows, 512},
                   {},
                   0,
                   {},
                   DType::kI64}};
  }
  // Elements of the router's output that a leg moves.
  const auto flips = [](int noise, int real) {
    return [=](const SyntheticTensor& t, int, const Leg& leg, int64_t index,
               float* value) {
      const int count = leg == "real" ? real : noise;
      if (t.fqn == "router" && index % 97 == 0 && index / 97 < count) {
        *value += 1;
      }
    };
  };
  reference_.fault = flips(4, 0);
  candidate_.fault = flips(0, 1);
  ExpectWithin(Check());
  candidate_.fault = flips(0, 43);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
  reference_.fault = nullptr;
  candidate_.fault = flips(0, 1);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
}

class SelectionTest : public HonestRunTest {
 protected:
  // What `--select` leaves of the candidate. Grafting needs its parameters.
  void Keep(const std::string& select,
            std::function<bool(const SyntheticTensor&, int rank)> kept) {
    candidate_.select = select;
    candidate_.omit = [kept = std::move(kept)](const SyntheticTensor& t,
                                               int rank, const Leg&, int) {
      return t.role != Role::kParam && !kept(t, rank);
    };
  }

  static void Wrong(const SyntheticTensor& t, int, const Leg&, int64_t,
                    float* value) {
    if (t.role == Role::kGradReduced || t.role == Role::kInput) *value *= 2;
  }
};

TEST_F(SelectionTest, OneRankIsComparedAndTheRestIsSaid) {
  for (const std::vector<MeshDim>& mesh :
       {std::vector<MeshDim>{{"dp", 1}, {"tp", 2}},
        std::vector<MeshDim>{{"dp", 2}, {"tp", 1}}}) {
    candidate_.mesh = mesh;
    Keep("rank=0", [](const SyntheticTensor&, int rank) { return rank == 0; });
    candidate_.fault = nullptr;
    const CheckResult result = CheckAgain();
    ExpectWithin(result);
    EXPECT_THAT(result.coverage.excused,
                Contains(testing::Key("left out by --select")));
    EXPECT_EQ(result.coverage.reference_only, 0);
    candidate_.fault = Wrong;
    EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
  }
}

TEST_F(SelectionTest, NamesAreComparedAndTheRestIsSaid) {
  Keep("fqn=*weight*", [](const SyntheticTensor& t, int) {
    return t.fqn.find("weight") != std::string::npos;
  });
  const CheckResult result = Check();
  ExpectWithin(result);
  EXPECT_EQ(result.coverage.compared, 3);
  EXPECT_EQ(result.coverage.reference_only, 0);
  candidate_.fault = Wrong;
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
}

// Of what a part holds, single elements are judged as those of the whole are.
TEST_F(SelectionTest, OneWrongElementOfAPartIsFound) {
  reference_.mesh = candidate_.mesh;
  Keep("rank=0", [](const SyntheticTensor&, int rank) { return rank == 0; });
  reference_.select = candidate_.select;
  reference_.omit = candidate_.omit;
  ExpectWithin(Check());
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&,
                        int64_t index, float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput && index == 18) {
      *value += 2e-6f;
    }
  };
  const CheckResult result = CheckAgain();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  const LegJudgement& leg = *Find(result, "fc", Role::kOutput).deciding();
  EXPECT_TRUE(std::any_of(
      leg.tests.begin(), leg.tests.end(), [](const ttrace::Test& t) {
        return t.statistic == Statistic::kElement && t.headroom > 1;
      }));
}

// An optimizer that divides by the size of tiny gradients makes of rounding
// what it will: the next iteration starts from other weights.
TEST_F(HonestRunTest, OtherWeightsAfterAStepAccuseNobodyInTheNextIteration) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->iterations = 2;
    run->extra = {{"fc.weight",
                   Role::kParamUpdated,
                   "",
                   Pass::kOptimizer,
                   {16, 32},
                   {{"tp", Shard{0}}},
                   -1,
                   {}}};
  }
  candidate_.faulty_iteration = 1;
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&,
                        int64_t index, float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput) {
      *value *= index % 2 == 0 ? 1.01f : 0.99f;
    }
  };
  const CheckResult result = Check();
  ExpectWithin(result);
  EXPECT_THAT(result.coverage.excused,
              Contains(testing::Key(HasSubstr("other weights"))));
  // Grafted, each iteration starts from the reference's.
  candidate_.notes = {{"graft", R"({"what":"weights"})"}};
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
}

// The same of steps before the first iteration that is recorded.
TEST_F(HonestRunTest, OtherWeightsAfterStepsThatNobodySawLeaveTheVerdictOpen) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->first_iteration = 3;
    run->extra = {{"fc.weight",
                   Role::kParam,
                   "",
                   Pass::kForward,
                   {16, 32},
                   {{"tp", Shard{0}}},
                   -1,
                   {}}};
  }
  ExpectWithin(Check());
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.role == Role::kParam) *value *= 1 + 1e-6F;
  };
  const CheckResult result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_THAT(result.reason, HasSubstr("begins after steps that were not"));
  EXPECT_THAT(result.culprits, testing::IsEmpty());
  // What no step made is given.
  reference_.first_iteration = candidate_.first_iteration = 0;
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
}

// A reference whose kernels add up in no fixed order is that far from itself.
TEST_F(HonestRunTest, WhatTheReferenceDoesNotRepeatIsAllowed) {
  reference_.legs.push_back("replay");
  const auto moved_in = [](const Leg& which) {
    return [=](const SyntheticTensor& t, int, const Leg& leg, int64_t index,
               float* value) {
      if (t.fqn == "fc" && t.role == Role::kOutput && leg == which) {
        *value *= index % 2 == 0 ? 1 + 1e-4f : 1 - 1e-4f;
      }
    };
  };
  candidate_.fault = moved_in("real");
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
  reference_.fault = moved_in("replay");
  ExpectWithin(CheckAgain());
}

// A leg of the reference that lacks a term of one sum says nothing of it.
TEST_F(HonestRunTest, AnUnusableLegEndsNothing) {
  reference_.mesh = {{"dp", 2}, {"tp", 1}};
  reference_.omit = [](const SyntheticTensor& t, int rank, const Leg& leg,
                       int) {
    return t.role == Role::kGradLocal && rank == 1 && leg == "noise.2";
  };
  const CheckResult result = Check();
  ExpectWithin(result);
  const auto legs_of = [&](Role role) {
    return Find(result, "fc.weight", role)
        .legs.at(0)
        .tests.at(0)
        .expected.noise_legs;
  };
  EXPECT_EQ(legs_of(Role::kGradLocal), 2);
  EXPECT_EQ(legs_of(Role::kGradReduced), 3);
}

// Shapes differ in a leg that is not needed.
TEST_F(HonestRunTest, AReplayThatIsNotWholeEndsNothing) {
  candidate_.mesh = {{"dp", 2}, {"tp", 1}};
  candidate_.legs = {"real", "replay", "fp32"};
  reference_.legs.push_back("fp32");
  candidate_.omit = [](const SyntheticTensor& t, int rank, const Leg& leg,
                       int) {
    return t.role == Role::kGradLocal && rank == 1 && leg != "real";
  };
  ExpectOpen(Check(), "a sum over 2 ranks has only 1 terms");
}

TEST_F(HonestRunTest, WithoutAReferenceWhatIsNotWholeIsNotCalledFinite) {
  candidate_.mesh = {{"dp", 2}, {"tp", 1}};
  candidate_.omit = [](const SyntheticTensor& t, int rank, const Leg&, int) {
    return t.role == Role::kGradLocal && rank == 1;
  };
  const CheckResult result = CheckWithoutReference();
  const TensorJudgement& t = Find(result, "fc.weight", Role::kGradLocal);
  EXPECT_EQ(t.verdict, TensorVerdict::kNotCheckable);
  EXPECT_THAT(ReasonWords(t.reason), HasSubstr("has only 1 terms"));
}

// Masked scores are. A gradient is not.
TEST_F(HonestRunTest, WithoutAReferenceActivationsMayBeInfinite) {
  const auto infinite = [](Role role) {
    return [=](const SyntheticTensor& t, int, const Leg&, int64_t index,
               float* value) {
      if (t.fqn == "fc" && t.role == role && index == 3) {
        *value = -std::numeric_limits<float>::infinity();
      }
    };
  };
  candidate_.fault = infinite(Role::kOutput);
  ExpectWithin(CheckWithoutReference());
  std::filesystem::remove_all(Path("cand"));
  candidate_.fault = infinite(Role::kGradOutput);
  const CheckResult result = CheckWithoutReference();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  EXPECT_EQ(result.culprits.front().tensor.role, Role::kGradOutput);
  EXPECT_THAT(result.culprits.front().ranks, testing::ElementsAre(0));
  EXPECT_EQ(Letters(result.culprits.front()).front(), "N");
}

}  // namespace
}  // namespace ttrace::honest_runs_test
