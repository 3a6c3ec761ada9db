// Runs with something wrong in them, each of a kind that has passed once, or
// was laid to the wrong place.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/check/testing/check_fixture.h"
#include "src/judge/reason_words.h"

namespace ttrace::wrong_runs_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

class WrongRunTest : public CheckTest {
 protected:
  void ForBoth(const std::function<void(SyntheticRun*)>& change) {
    change(&reference_);
    change(&candidate_);
  }

  void ExpectOpen(const std::string& words) {
    const CheckResult result = CheckAgain();
    EXPECT_EQ(result.verdict, Verdict::kInconclusive) << result.reason;
    EXPECT_TRUE(result.culprits.empty());
    EXPECT_THAT(result.reason, HasSubstr(words));
  }

  static std::vector<std::string> Places(const CheckResult& result) {
    std::vector<std::string> out;
    for (const Culprit& culprit : result.culprits) out.push_back(culprit.fqn);
    return out;
  }

  static SyntheticTensor Made(const std::string& fqn, Role role,
                              const Shape& shape) {
    const bool gradient =
        role == Role::kGradReduced || role == Role::kGradInput;
    const bool rows = role == Role::kInput || role == Role::kOutput ||
                      role == Role::kGradInput;
    return {fqn,
            role,
            rows ? "0" : "",
            gradient ? Pass::kBackward : Pass::kForward,
            shape,
            {},
            rows ? 0 : -1,
            {}};
  }
};

// A run that ended in its second iteration was about to make the gradients that
// it lacks there; what is wrong in the first is wrong all the same.
TEST_F(WrongRunTest, WhatAnIterationThatWasCutLacksIsNotMissing) {
  ForBoth([](SyntheticRun* run) { run->iterations = 2; });
  candidate_.faulty_iteration = 0;
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.role == Role::kGradReduced) *value *= 1.5F;
  };
  for (const bool cut : {false, true}) {
    candidate_.stopped_ranks =
        cut ? std::vector<int>{0, 1} : std::vector<int>{};
    candidate_.stopped_in = 1;
    candidate_.omit = [](const SyntheticTensor& t, int, const Leg&,
                         int iteration) {
      return iteration == 1 && t.role == Role::kGradReduced;
    };
    const CheckResult result = CheckAgain();
    ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
    EXPECT_EQ(result.culprits[0].iteration, 0);
    const std::vector<std::string> letters = Letters(result.culprits[0]);
    EXPECT_EQ(std::count(letters.begin(), letters.end(), "M"), cut ? 0 : 1);
    EXPECT_THAT(letters, Contains("K"));
  }
}

// Nor is a module of the reference alone what such an iteration has not come
// to.
TEST_F(WrongRunTest, WhatAnIterationThatWasCutLacksIsNoOtherStructure) {
  ForBoth([](SyntheticRun* run) {
    run->iterations = 2;
    run->extra.push_back(Made("more", Role::kOutput, {SyntheticRun::kRows, 4}));
  });
  candidate_.faulty_iteration = 1;
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput) *value *= 1.5F;
  };
  candidate_.omit = [](const SyntheticTensor& t, int, const Leg&,
                       int iteration) {
    return iteration == 1 && t.fqn == "more";
  };
  for (const bool cut : {false, true}) {
    candidate_.stopped_ranks =
        cut ? std::vector<int>{0, 1} : std::vector<int>{};
    candidate_.stopped_in = 1;
    const CheckResult result = CheckAgain();
    ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
    EXPECT_EQ(result.culprits[0].iteration, 1);
    const std::vector<std::string> letters = Letters(result.culprits[0]);
    EXPECT_EQ(std::count(letters.begin(), letters.end(), "Z"), cut ? 0 : 1);
  }
}

// A module that computes in bf16 where the reference does in fp32.
TEST_F(WrongRunTest, AWrongCastDoesNotWidenItsOwnBound) {
  ForBoth([](SyntheticRun* run) {
    for (const Role role : {Role::kOutput, Role::kGradInput}) {
      run->extra.push_back(Made("low", role, {SyntheticRun::kRows, 16}));
      run->extra.back().dtype = DType::kBF16;
    }
  });
  EXPECT_EQ(Check().verdict, Verdict::kWithin);
  candidate_.dtypes = {{"fc", DType::kBF16}};
  const CheckResult result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kDiverged);
  // Nor those of others: its sum over ranks is one of fp32 in the reference.
  const TensorJudgement& low = Find(result, "low", Role::kGradInput);
  EXPECT_EQ(low.legs.at(0).tests.at(0).expected.growth, 1);
}

// Parameters in fp32 under autocast do not make activations fp32, whose bounds
// grow with the terms of a sum.
TEST_F(WrongRunTest, PrecisionIsThatOfTheTensor) {
  ForBoth([](SyntheticRun* run) {
    run->dtype = DType::kBF16;
    run->noise_of_legs = 0x1p-8f;
    run->dtypes = {{"fc.weight", DType::kF32}};
    // A sum of many terms.
    run->extra = {Made("head.weight", Role::kParam, {16, 4096})};
    run->extra.front().dtype = DType::kF32;
  });
  EXPECT_EQ(Check().verdict, Verdict::kWithin);
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&,
                        int64_t index, float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput) {
      *value *= index % 2 == 0 ? 1.03f : 0.97f;
    }
  };
  const CheckResult result = CheckAgain();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  EXPECT_EQ(result.culprits.front().fqn, "fc");
  EXPECT_EQ(Find(result, "fc", Role::kOutput).deciding()->leg, "real");
}

// All gradients a little too large, less than the norm's bound admits where
// sums are of many terms.
TEST_F(WrongRunTest, ACommonFactorIsSeenWhereTheNormAdmitsIt) {
  ForBoth([](SyntheticRun* run) {
    run->extra = {Made("head.weight", Role::kParam, {16, 4096})};
  });
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.role == Role::kGradReduced) *value *= 1 + 0x1.8p-20f;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  const LegJudgement& leg =
      *Find(result, "fc.weight", Role::kGradReduced).deciding();
  EXPECT_EQ(leg.deciding()->statistic, Statistic::kProjection);
  EXPECT_LT(leg.err, leg.bound);
}

// What rank 1 holds is a thousandth of the tensor's norm.
TEST_F(WrongRunTest, ASmallShardIsJudgedByItself) {
  const auto small = [](const SyntheticTensor& t, int64_t index) {
    return t.fqn == "fc" && t.role == Role::kOutput && index % 16 >= 8;
  };
  const auto with_error = [&](float error) {
    return [=](const SyntheticTensor& t, int, const Leg&, int64_t index,
               float* value) {
      if (!small(t, index)) return;
      *value *= 1e-3f * (1 + (index % 2 == 0 ? error : -error));
    };
  };
  reference_.fault = with_error(0);
  candidate_.fault = with_error(0);
  EXPECT_EQ(Check().verdict, Verdict::kWithin);
  candidate_.fault = with_error(1e-4f);
  const CheckResult result = CheckAgain();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  EXPECT_EQ(result.culprits.front().fqn, "fc");
  EXPECT_THAT(result.culprits.front().ranks, ElementsAre(1));
  const LegJudgement& leg = *Find(result, "fc", Role::kOutput).deciding();
  EXPECT_EQ(leg.deciding()->statistic, Statistic::kPiece);
  EXPECT_LT(leg.err, leg.bound);
}

// Elements that neither side holds were compared by nobody.
TEST_F(WrongRunTest, WhatBothSidesLackIsNoEvidence) {
  reference_.mesh = candidate_.mesh;
  ForBoth([](SyntheticRun* run) {
    run->omit = [](const SyntheticTensor& t, int rank, const Leg&, int) {
      return t.role == Role::kGradReduced && rank == 1;
    };
  });
  ExpectOpen("1 tensor is without a partner or not whole, first fc.weight");
  EXPECT_THAT(
      ReasonWords(Find(Check(), "fc.weight", Role::kGradReduced).reason),
      HasSubstr("neither run has 256 of its elements"));
  // Unless they were not asked for.
  candidate_.select = reference_.select = "rank=0";
  EXPECT_EQ(CheckAgain().verdict, Verdict::kWithin);
}

// The gradient of its input is zero, and rightly.
TEST_F(WrongRunTest, AModuleThatReturnsNothingIsNoGap) {
  const auto with_columns = [&](int64_t columns) {
    ForBoth([&](SyntheticRun* run) {
      run->extra = {
          Made("empty", Role::kOutput, {SyntheticRun::kRows, columns}),
          Made("empty", Role::kGradInput, {SyntheticRun::kRows, 16})};
      run->fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                      float* value) {
        if (t.fqn == "empty" && t.role == Role::kGradInput) *value = 0;
      };
    });
  };
  with_columns(0);
  const CheckResult result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  with_columns(16);
  ExpectOpen("is zero or not finite in the reference");
}

TEST_F(WrongRunTest, AGradientOfZeroForTheModelsOwnInputIsNoGap) {
  const auto with_zero_of = [&](const std::string& fqn) {
    ForBoth([&](SyntheticRun* run) {
      run->extra = {Made(fqn, Role::kGradInput, {SyntheticRun::kRows, 16})};
      run->fault = [fqn](const SyntheticTensor& t, int, const Leg&, int64_t,
                         float* value) {
        if (t.fqn == fqn && t.role == Role::kGradInput) *value = 0;
      };
    });
  };
  with_zero_of("");
  const CheckResult result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  with_zero_of("inner");
  ExpectOpen("is zero or not finite in the reference");
}

// All but one layer of a class drown in noise.
TEST_F(WrongRunTest, AModuleOfWhichNothingIsJudgedLeavesTheVerdictOpen) {
  ForBoth([](SyntheticRun* run) {
    for (int layer = 0; layer < 4; ++layer) {
      const std::string fqn = "layers." + std::to_string(layer);
      run->extra.push_back(Made(fqn, Role::kOutput, {SyntheticRun::kRows, 16}));
      run->extra.push_back(Made(fqn + ".weight", Role::kGradReduced, {16, 16}));
    }
  });
  const auto noisy = [&](bool gradients_too) {
    reference_.fault = [=](const SyntheticTensor& t, int, const Leg& leg,
                           int64_t index, float* value) {
      if (!t.fqn.starts_with("layers.") || t.fqn.starts_with("layers.0") ||
          leg == "real" || (t.role == Role::kGradReduced && !gradients_too)) {
        return;
      }
      *value *= index % 2 == 0 ? 1.5f : 0.5f;
    };
  };
  noisy(false);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kWithin);
  noisy(true);
  ExpectOpen("no tensor of layers.1 and 2 more modules can be judged (6 of");
}

// One module is twice as large as it should be, another half: two faults, also
// of parameters, and under names that differ in a digit.
TEST_F(WrongRunTest, OtherFactorsAreOtherFaults) {
  for (const auto& names :
       {std::vector<std::string>{"fc1", "fc2"}, {"mlp.w1", "mlp.w2"}}) {
    ForBoth([&](SyntheticRun* run) {
      run->extra.clear();
      for (const std::string& name : names) {
        run->extra.push_back(
            Made(name, Role::kInput, {SyntheticRun::kRows, 16}));
        run->extra.push_back(
            Made(name, Role::kOutput, {SyntheticRun::kRows, 16}));
        run->extra.push_back(
            Made(name + ".weight", Role::kGradReduced, {16, 16}));
      }
    });
    const auto scale = [&](Role role) {
      candidate_.fault = [=](const SyntheticTensor& t, int, const Leg&, int64_t,
                             float* value) {
        if (t.role != role) return;
        if (t.fqn.starts_with(names[0])) *value *= 2;
        if (t.fqn.starts_with(names[1])) *value *= 0.5f;
      };
      return CheckAgain();
    };
    for (const Role role : {Role::kOutput, Role::kGradReduced}) {
      const CheckResult result = scale(role);
      ASSERT_EQ(result.verdict, Verdict::kDiverged);
      const std::string suffix = role == Role::kOutput ? "" : ".weight";
      EXPECT_THAT(Places(result),
                  UnorderedElementsAre(names[0] + suffix, names[1] + suffix));
      for (const Culprit& culprit : result.culprits) {
        EXPECT_EQ(culprit.affected.count, 1);
        ASSERT_EQ(Letters(culprit).front(), "K");
        const double factor = culprit.fqn.starts_with(names[0]) ? 2 : 0.5;
        EXPECT_NEAR(culprit.classes.front().value, factor, 1e-3);
      }
    }
  }
}

TEST_F(WrongRunTest, WhatIsSaidOfAnAffectedParameterIsQuoted) {
  ForBoth([](SyntheticRun* run) {
    run->extra = {Made("a.weight", Role::kGradReduced, {16, 16}),
                  Made("b.bias", Role::kGradReduced, {64})};
  });
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.fqn == "a.weight" || t.fqn == "b.bias") *value *= 3;
  };
  // Said by the parallelism library of one of them alone.
  candidate_.notes = {
      {"attribute",
       R"({"fqn":"b.bias","name":"gradient_scaling_factor","value":3,)"
       R"("expected":1})"}};
  const CheckResult result = Check();
  ASSERT_THAT(Places(result), ElementsAre("a.weight"));
  const Culprit& first = result.culprits.front();
  EXPECT_THAT(Letters(first), ElementsAre("K"));
  EXPECT_THAT(Words(first.classes.front()),
              HasSubstr("attribute gradient_scaling_factor of b.bias is 3"));
}

// A factor is named by what the run has that many of.
TEST_F(WrongRunTest, AFactorMayBeTheBatchOrTheSequence) {
  ForBoth([](SyntheticRun* run) {
    run->extra = {Made("", Role::kInput, {SyntheticRun::kRows, 24})};
    run->extra.front().dtype = DType::kI64;
  });
  const auto words = [&](float factor) {
    candidate_.fault = [=](const SyntheticTensor& t, int, const Leg&, int64_t,
                           float* value) {
      if (t.role == Role::kGradReduced) *value *= factor;
    };
    return Words(CheckAgain().culprits.at(0).classes.at(0));
  };
  EXPECT_THAT(words(8), HasSubstr("rows of the global batch = 8"));
  EXPECT_THAT(words(24), HasSubstr("sequence length = 24"));
  EXPECT_THAT(words(32), Not(HasSubstr("sequence length = 32")));
}

TEST_F(WrongRunTest, OfCopiesThatDifferThoseOfTheReferenceAreTold) {
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&, int64_t,
                        float* value) {
    if (t.fqn == "fc" && t.role == Role::kInput && rank == 1) *value += 1;
  };
  EXPECT_THAT(Words(Check().culprits.at(0).classes.at(0)),
              HasSubstr("those of rank 0 are the reference's, those of rank 1 "
                        "are not"));
}

// The replay of a value happened to be equal, in a run that repeats nothing.
TEST_F(WrongRunTest, CopiesNeedNotBeEqualBehindWhatIsNotRepeated) {
  candidate_.legs = {"real", "replay"};
  candidate_.noise = 0;
  const auto run = [&](bool repeats, float difference) {
    candidate_.fault = [=](const SyntheticTensor& t, int rank, const Leg& leg,
                           int64_t index, float* value) {
      if (t.fqn != "fc" || rank != 1) return;
      if (t.role == Role::kOutput && leg == "replay" && !repeats) {
        *value = std::nextafter(*value, 2.0f);
      }
      if (t.role == Role::kGradInput) {
        *value *= 1 + (index % 2 == 0 ? difference : -difference);
      }
    };
    return CheckAgain().verdict;
  };
  EXPECT_EQ(run(true, 0x1p-23f), Verdict::kDiverged);
  EXPECT_EQ(run(false, 0x1p-23f), Verdict::kWithin);
  EXPECT_EQ(run(false, 0x1p-15f), Verdict::kDiverged);
}

// Nothing that is computed in the iterations that are compared shows it.
TEST_F(WrongRunTest, AnotherLearningRateIsACulprit) {
  const auto told = [](const std::string& rate) {
    return std::vector<std::pair<std::string, std::string>>{
        {"optimizer_group",
         R"({"iteration":0,"optimizer":0,"group":0,"kind":"Adam","values":)"
         R"({"lr":)" +
             rate + R"(,"eps":1e-8},"parameters":["fc.weight"]})"}};
  };
  reference_.notes = candidate_.notes = told("0.001");
  EXPECT_EQ(Check().verdict, Verdict::kWithin);
  candidate_.notes = told("0.002");
  const CheckResult result = CheckAgain();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  const Culprit& first = result.culprits.front();
  EXPECT_EQ(first.stage, Stage::kOptimizer);
  EXPECT_THAT(Letters(first), ElementsAre("H"));
  EXPECT_NEAR(first.classes.front().value, 2, 1e-9);
  // Told to one rank only: what its step makes differs from the copies, and
  // comes after its cause.
  ForBoth([](SyntheticRun* run) {
    run->extra = {Made("norm.weight", Role::kParamUpdated, {16, 16})};
  });
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&, int64_t,
                        float* value) {
    if (t.role == Role::kParamUpdated && rank == 1) *value *= 2;
  };
  const CheckResult both = CheckAgain();
  ASSERT_GT(both.culprits.size(), 1U);
  EXPECT_THAT(Letters(both.culprits[0]), ElementsAre("H"));
  EXPECT_EQ(both.culprits[1].fqn, "norm.weight");
}

// Gradients are recorded together, when all of them are there.
TEST_F(WrongRunTest, TheGradientThatIsReducedFirstIsNamedFirst) {
  ForBoth([](SyntheticRun* run) {
    for (const Role role : {Role::kParam, Role::kGradReduced}) {
      for (const char* name : {"a.weight", "b.weight"}) {
        run->extra.push_back(Made(name, role, {16, 16}));
      }
    }
  });
  const auto wrong = [](Role role) {
    return [role](const SyntheticTensor& t, int, const Leg&, int64_t index,
                  float* value) {
      if (t.role == role && t.fqn != "fc.weight" && index % 2 == 0) *value *= 2;
    };
  };
  candidate_.fault = wrong(Role::kGradReduced);
  EXPECT_EQ(Check().culprits.front().fqn, "a.weight");
  candidate_.notes = {
      {"reduction_order", R"({"names":["b.weight","a.weight"]})"}};
  EXPECT_EQ(CheckAgain().culprits.front().fqn, "b.weight");
  // Not of parameters, and those that were not seen come last.
  candidate_.fault = wrong(Role::kParam);
  EXPECT_EQ(CheckAgain().culprits.front().fqn, "a.weight");
  candidate_.notes = {{"reduction_order", R"({"names":["b.weight"]})"}};
  candidate_.fault = wrong(Role::kGradReduced);
  EXPECT_EQ(CheckAgain().culprits.front().fqn, "b.weight");
}

// A gradient that lacks terms is wrong before its reduction. When that began is
// part of the communication.
TEST_F(WrongRunTest, AReductionThatBeganTooEarlyIsCommunication) {
  const auto wrong = [](Role role) {
    return [role](const SyntheticTensor& t, int, const Leg&, int64_t index,
                  float* value) {
      if (t.role == role && index % 2 == 0) *value *= 1.5f;
    };
  };
  const auto note = [](const char* iteration, const char* parameter) {
    return std::pair<std::string, std::string>(
        "reduced_early", std::string(R"({"iteration":)") + iteration +
                             R"(,"parameters":[")" + parameter +
                             R"("],"micro_batch":1,"micro_batches":4,)" +
                             R"("late":[2,3]})");
  };
  const auto first = [this]() {
    const CheckResult result = CheckAgain();
    EXPECT_EQ(result.verdict, Verdict::kDiverged);
    return result.culprits.front();
  };
  candidate_.fault = wrong(Role::kGradLocal);
  EXPECT_EQ(first().stage, Stage::kCompute);
  // Of another parameter or iteration it explains nothing.
  candidate_.notes = {note("0", "other.weight"), note("7", "fc.weight")};
  EXPECT_EQ(first().stage, Stage::kCompute);
  candidate_.notes = {note("0", "fc.weight")};
  const Culprit early = first();
  EXPECT_EQ(early.fqn, "fc.weight");
  EXPECT_EQ(early.direction, Direction::kBackward);
  EXPECT_EQ(early.stage, Stage::kCommunication);
  ASSERT_THAT(Letters(early), Contains("P"));
  EXPECT_THAT(early.classes.front().evidence,
              HasSubstr("micro-batches 2, 3 came after"));
  // What was handed to the reduction was right.
  candidate_.fault = wrong(Role::kGradReduced);
  EXPECT_THAT(Letters(first()), Not(Contains("P")));
  // But where the local gradient has what came after.
  candidate_.notes.front().second.insert(1, R"("local_is_whole":true,)");
  EXPECT_THAT(first().classes.front().evidence,
              HasSubstr("micro-batches 2, 3 came after"));
  candidate_.fault = wrong(Role::kGradLocal);
  EXPECT_THAT(Letters(first()), Not(Contains("P")));
  // It is no evidence of a fault by itself.
  candidate_.fault = nullptr;
  EXPECT_EQ(CheckAgain().verdict, Verdict::kWithin);
  candidate_.notes = {{"reduced_early", "{}"}};
  EXPECT_THAT(Notes(CheckAgain()),
              Contains(HasSubstr("of early reductions unreadable")));
}

// It is the loop that clears a gradient, and no reduction that leaves it out.
TEST_F(WrongRunTest, AGradientThatTheLoopClearsIsNamed) {
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&,
                        int64_t index, float* value) {
    if (t.role == Role::kGradReduced && index % 2 == 0) *value *= 1.5f;
  };
  const auto note = [](const char* iteration, const char* parameter) {
    return std::pair<std::string, std::string>(
        "gradients_cleared", std::string(R"({"iteration":)") + iteration +
                                 R"(,"micro_batches":1,"parameters":[")" +
                                 parameter + R"("]})");
  };
  const auto first = [this]() {
    const CheckResult result = CheckAgain();
    EXPECT_EQ(result.verdict, Verdict::kDiverged);
    return result.culprits.front();
  };
  // Of another parameter or iteration it explains nothing.
  candidate_.notes = {note("0", "other.weight"), note("7", "fc.weight")};
  EXPECT_EQ(first().stage, Stage::kCommunication);
  candidate_.notes = {note("0", "fc.weight")};
  const Culprit culprit = first();
  EXPECT_EQ(culprit.fqn, "fc.weight");
  EXPECT_EQ(culprit.stage, Stage::kCompute);
  EXPECT_EQ(Letters(culprit).front(), "S");
  // What the reference does too is no difference.
  reference_.notes = {note("0", "fc.weight")};
  EXPECT_EQ(first().stage, Stage::kCommunication);
  // Nor is it a fault by itself.
  reference_.notes = {};
  candidate_.fault = nullptr;
  EXPECT_EQ(CheckAgain().verdict, Verdict::kWithin);
  candidate_.notes = {{"gradients_cleared", "{}"}};
  EXPECT_THAT(Notes(CheckAgain()),
              Contains(HasSubstr("of cleared gradients unreadable")));
}

// What is strange about the reference is said: it is what the user trusts.
TEST_F(WrongRunTest, OneMaskForTwoPlacesIsACulpritOfTheCandidateAlone) {
  std::vector<std::pair<std::string, std::string>> masks;
  for (const std::string name : {"a", "b"}) {
    masks.emplace_back(
        "dropout_mask",
        R"({"iteration":0,"fqn":")" + name +
            R"(","call":0,"micro_batch":0,"pass":"forward","shape":[100],)" +
            R"("p":0.5,"elements":100,"input":")" + name +
            R"(","mask":"m","repeats":false,"sample":[1,2]})");
  }
  const std::string words = "dropout 0 in a and dropout 0 in b have the same";
  reference_.notes = masks;
  const CheckResult within = Check();
  EXPECT_EQ(within.verdict, Verdict::kWithin) << within.reason;
  EXPECT_THAT(Notes(within), Contains(HasSubstr("in the reference, " + words)));
  reference_.notes = {};
  candidate_.notes = masks;
  const CheckResult result = CheckAgain();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  EXPECT_THAT(Letters(result.culprits.front()), ElementsAre("U"));
  EXPECT_THAT(Words(result.culprits.front().classes.front()), HasSubstr(words));
}

// Not observed on one side: a module that exists, of which nothing is known.
TEST_F(WrongRunTest, AModuleThatIsNotObservedIsNotMissing) {
  ForBoth([](SyntheticRun* run) {
    run->extra = {Made("block", Role::kOutput, {SyntheticRun::kRows, 16}),
                  Made("block.inner", Role::kOutput, {SyntheticRun::kRows, 16}),
                  Made("block.inner.weight", Role::kParam, {16, 16})};
  });
  candidate_.notes = {{"not_observed", R"({"fqn":"block.inner","class":"Own",)"
                                       R"("reason":"its class is unknown"})"}};
  candidate_.omit = [](const SyntheticTensor& t, int, const Leg&, int) {
    return t.fqn.starts_with("block.inner");
  };
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&,
                        int64_t index, float* value) {
    if (t.fqn == "block") *value = SyntheticRun::Value(t, index + 64);
  };
  const auto all_words = [](const CheckResult& of) {
    std::string out;
    for (const Diagnosis& diagnosis : of.culprits.at(0).classes) {
      out += Words(diagnosis);
    }
    return out;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_THAT(all_words(result), Not(HasSubstr("only in the reference")));
  EXPECT_THAT(Notes(result), Contains(HasSubstr("its class is unknown")));
  candidate_.notes = {};
  EXPECT_THAT(all_words(CheckAgain()),
              HasSubstr("2 modules or parameters only in the reference"));
}

// A module whose inside only one side shows is an implementation's choice, if
// nothing in it is learned and the other side does not show another inside.
TEST_F(WrongRunTest, TheInsideOfAModuleMayBeMissing) {
  ForBoth([](SyntheticRun* run) {
    run->extra = {Made("block", Role::kOutput, {SyntheticRun::kRows, 16})};
  });
  const auto shown = [](const std::string& fqn, Role role) {
    return Made(fqn, role, {SyntheticRun::kRows, 16});
  };
  const auto is_explained = [&] {
    return Find(CheckAgain(), "block.softmax", Role::kOutput).excused;
  };
  reference_.extra.push_back(shown("block.softmax", Role::kOutput));
  EXPECT_TRUE(is_explained());
  EXPECT_EQ(Check().verdict, Verdict::kWithin);
  candidate_.extra.push_back(shown("block.scale", Role::kOutput));
  EXPECT_FALSE(is_explained());
  candidate_.extra.pop_back();
  for (const Role role : {Role::kParam, Role::kGradReduced}) {
    reference_.extra.push_back(shown("block.softmax.weight", role));
    EXPECT_FALSE(is_explained());
    reference_.extra.pop_back();
  }
}

// Nothing says where it lies.
TEST_F(WrongRunTest, WhatCouldNotBeRecordedIsNotMissing) {
  ForBoth([](SyntheticRun* run) {
    run->extra = {Made("block", Role::kOutput, {SyntheticRun::kRows, 16})};
  });
  candidate_.omitted_fqn = "block";
  candidate_.notes = {{"not_recorded",
                       R"({"fqn":"block","role":"output","arg":"0",)"
                       R"("reason":"its sum is pending"})"}};
  const TensorJudgement block = Find(Check(), "block", Role::kOutput);
  EXPECT_TRUE(block.excused);
  EXPECT_THAT(ReasonWords(block.reason), HasSubstr("its sum is pending"));
}

// As capture notes what was computed while its stream was captured: that it was
// not compared is explained, and yet nothing passes.
TEST_F(WrongRunTest, WhatWasComputedIntoAGraphLeavesTheVerdictOpen) {
  ForBoth([](SyntheticRun* run) {
    run->extra = {Made("block", Role::kOutput, {SyntheticRun::kRows, 16})};
  });
  candidate_.omitted_fqn = "block";
  const std::pair<std::string, std::string> named = {
      "not_recorded",
      R"({"fqn":"block","role":"output","arg":"0",)"
      R"("reason":"its stream was captured into a CUDA graph"})"};
  candidate_.notes = {
      {"unsupported", R"({"what":"CUDA graphs","reason":"hooks do not run",)"
                      R"("way_out":"run without them"})"},
      named};
  ExpectOpen("CUDA graphs is not supported");
}

TEST_F(WrongRunTest, WhatIsCleanIsCountedByKind) {
  ForBoth([](SyntheticRun* run) {
    run->extra = {Made("open", Role::kOutput, {SyntheticRun::kRows, 16}),
                  Made("lost", Role::kOutput, {SyntheticRun::kRows, 16})};
  });
  candidate_.omitted_fqn = "lost";
  reference_.fault = [](const SyntheticTensor& t, int, const Leg& leg,
                        int64_t index, float* value) {
    if (t.fqn == "open" && leg != "real")
      *value *= index % 2 == 0 ? 1.5f : 0.5f;
  };
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&,
                        int64_t index, float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput)
      *value *= index % 2 == 0 ? 1.0f : 2.0f;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.clean.size(), 3U);
  EXPECT_EQ(result.clean[0].of, 6) << "without what is lost";
  EXPECT_EQ(result.clean[0].clean, 4) << "without what is open or wrong";
  EXPECT_EQ(result.clean[1].of, 3);
  EXPECT_EQ(result.clean[1].clean, 3);
  EXPECT_EQ(result.clean[2].clean, 2);
}

TEST_F(WrongRunTest, AModuleThatIsFusedIntoAnotherIsNotMissing) {
  ForBoth([](SyntheticRun* run) {
    run->extra = {Made("block", Role::kOutput, {SyntheticRun::kRows, 16}),
                  Made("block.norm", Role::kOutput, {SyntheticRun::kRows, 16}),
                  Made("block.norm.weight", Role::kParam, {16, 16})};
  });
  candidate_.omit = [](const SyntheticTensor& t, int, const Leg&, int) {
    return t.fqn == "block.norm";
  };
  EXPECT_EQ(CheckAgain().verdict, Verdict::kInconclusive);
  candidate_.notes = {
      {"not_materialised",
       R"({"fqn":"block.norm","reason":"inside a fused linear"})"}};
  const CheckResult result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_THAT(result.coverage.excused,
              Contains(testing::Key("not materialised: inside a fused "
                                    "linear")));
}

// A sum over ranks that nobody made before the model gave its output away: what
// is computed from it cannot be placed, and the verdict says why.
TEST_F(WrongRunTest, AnOutputThatCannotBePlacedIsNamedWithTheCause) {
  candidate_.notes = {{"not_observed",
                       R"({"fqn":"","class":"Toy",)"
                       R"("reason":"computed from a sum that is pending"})"}};
  candidate_.omit = [](const SyntheticTensor& t, int, const Leg&, int) {
    return t.fqn.empty() && t.role != Role::kInput;
  };
  ExpectOpen(
      "2 tensors are without a partner or not whole, first the model output 0: "
      "not observed: computed from a sum that is pending");
}

// Gradients are made of what the model is given.
TEST_F(WrongRunTest, OtherInputWithCleanGradientsIsNoFinding) {
  const auto break_role = [&](std::initializer_list<Role> roles) {
    candidate_.fault = [roles = std::set<Role>(roles)](const SyntheticTensor& t,
                                                       int, const Leg&, int64_t,
                                                       float* value) {
      const bool model = t.fqn.empty() && t.role == Role::kInput;
      if ((model || t.role != Role::kInput) && roles.contains(t.role)) {
        *value += 1;
      }
    };
  };
  break_role({Role::kInput});
  const CheckResult open = CheckAgain();
  EXPECT_EQ(open.verdict, Verdict::kInconclusive);
  EXPECT_THAT(open.reason,
              HasSubstr("the model input tokens, iteration 0, is out of "
                        "bounds, but all 1 reduced gradients"));
  break_role({Role::kInput, Role::kGradReduced});
  const CheckResult found = CheckAgain();
  ASSERT_EQ(found.verdict, Verdict::kDiverged);
  EXPECT_EQ(found.culprits.front().tensor.role, Role::kInput);
}

// A running mean of each rank's own rows: honest where nothing uses it.
TEST_F(WrongRunTest, ABufferIsTheCulpritOfWhatIsComputedWithIt) {
  ForBoth([](SyntheticRun* run) {
    run->extra = {Made("fc.mean", Role::kBuffer, {4, 4})};
    run->iterations = 2;
  });
  candidate_.notes = {{"graft", R"({"what":"weights"})"}};
  candidate_.faulty_iteration = 1;
  bool used = false;
  candidate_.fault = [&](const SyntheticTensor& t, int rank, const Leg&,
                         int64_t, float* value) {
    if (t.role == Role::kBuffer) *value += 0.01f * static_cast<float>(rank + 1);
    if (t.fqn == "fc" && t.role == Role::kOutput && used) *value += 1;
  };
  const CheckResult kept = CheckAgain();
  EXPECT_EQ(kept.verdict, Verdict::kWithin) << kept.reason;
  EXPECT_THAT(kept.coverage.excused,
              Contains(testing::Key(HasSubstr("a statistic of a rank's own"))));
  used = true;
  const CheckResult found = CheckAgain();
  ASSERT_EQ(found.verdict, Verdict::kDiverged) << found.reason;
  EXPECT_EQ(found.culprits.front().fqn, "fc.mean");
  EXPECT_TRUE(found.coverage.excused.empty());
  EXPECT_EQ(found.coverage.compared, kept.coverage.compared + 1);
}

TEST_F(WrongRunTest, ANoteOfWhatIsNotObservedDoesNotDenyWhatWasCompared) {
  candidate_.notes = {{"not_observed", R"({"fqn":"fc","class":"Own",)"
                                       R"("reason":"it lies nowhere"})"},
                      {"not_observed", R"({"fqn":"other","class":"Else",)"
                                       R"("reason":"it lies nowhere"})"}};
  const std::vector<std::string> notes = Notes(Check());
  EXPECT_THAT(notes, Contains(HasSubstr("not wholly observed, class Own")));
  EXPECT_THAT(notes, Contains(HasSubstr("not observed, class Else")));
}

}  // namespace
}  // namespace ttrace::wrong_runs_test
