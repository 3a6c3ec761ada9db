// Whole checks of runs with routed experts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "src/align/testing/routed_run.h"
#include "src/check/check.h"
#include "src/judge/reason_words.h"
#include "src/report/render.h"

namespace ttrace::routed_runs_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kToken = 11;

// An expert that the token is sent to, and one that it is not.
int Dropped() { return *RoutedRun::Route(kToken).begin(); }
int Added() {
  int e = 0;
  while (RoutedRun::Route(kToken).contains(e)) ++e;
  return e;
}

class RoutedRunsTest : public testing::Test {
 protected:
  void SetUp() override {
    reference_.rows_of_a_batch = RoutedRun::kRows;
    reference_.legs = {"real",    "noise.1",          "noise.2",
                       "noise.3", "isolated.noise.1", "isolated.noise.2"};
    candidate_.dp = 2;
    candidate_.tp = 2;
    candidate_.rows_of_a_batch = 1;
    candidate_.noise = 0x1p-24F;
    candidate_.legs = {"real", "isolated"};
    candidate_.map_of_isolated = "routing_used";
    candidate_.notes = {{"graft", R"({"what":"weights"})"},
                        {"graft", R"({"what":"data"})"}};
  }

  CheckResult Check() {
    const ScratchFolder reference;
    const ScratchFolder candidate;
    reference_.Write(reference.path());
    candidate_.Write(candidate.path());
    CheckOptions options;
    if (with_reference_) options.reference = reference.path();
    options.candidate = candidate.path();
    return OrDie(RunCheck(options));
  }

  // Scores of kToken that are `apart` for the two experts, in all legs.
  void SetScores(float apart) {
    const auto set = [apart](RoutedPiece* piece) {
      if (piece->spec.arg != "scores") return true;
      for (size_t i = 0; i < piece->tokens.size(); ++i) {
        if (piece->tokens[i] != kToken) continue;
        float* scores = &piece->values[i * RoutedRun::kExperts];
        scores[Dropped()] = 0.5F;
        scores[Added()] = 0.5F - apart;
      }
      return true;
    };
    reference_.change = set;
    candidate_.change = [set, more = candidate_.change](RoutedPiece* piece) {
      return set(piece) && (!more || more(piece));
    };
  }

  // The candidate's own run sends kToken elsewhere, and what is computed of it
  // afterwards is something else.
  void Flip() {
    candidate_.routing = [](const Leg& leg, int64_t token) {
      std::set<int> experts = RoutedRun::Route(token);
      if (token == kToken && leg == "real") {
        experts.erase(Dropped());
        experts.insert(Added());
      }
      return experts;
    };
    candidate_.change = [more = candidate_.change](RoutedPiece* piece) {
      const bool after =
          (piece->spec.fqn == "moe" || piece->spec.fqn.empty()) &&
          piece->spec.role == Role::kOutput;
      for (size_t i = 0; after && i < piece->tokens.size(); ++i) {
        if (piece->tokens[i] == kToken && piece->leg == "real") {
          piece->values[i * RoutedRun::kHidden] += 0.5F;
        }
      }
      return !more || more(piece);
    };
  }

  static const TensorJudgement& Find(const CheckResult& result,
                                     const std::string& fqn, Role role,
                                     const std::string& arg) {
    for (const TensorJudgement& t : result.tensors) {
      if (t.id.fqn == fqn && t.id.role == role && t.id.arg == arg) return t;
    }
    ADD_FAILURE() << fqn;
    return result.tensors.front();
  }
  RoutedRun reference_;
  RoutedRun candidate_;
  bool with_reference_ = true;
};

TEST_F(RoutedRunsTest, CleanOnesAreWithinOnEveryMesh) {
  for (const auto& [dp, cp, tp] : {std::tuple(2, 1, 2), std::tuple(2, 2, 1),
                                   std::tuple(1, 1, 2), std::tuple(4, 1, 1)}) {
    candidate_.dp = dp;
    candidate_.cp = cp;
    candidate_.tp = tp;
    // A recomputed forward's map is no further decision.
    if (tp == 2) {
      reference_.recomputed = candidate_.recomputed = RoutedRun::Route;
    }
    const CheckResult result = Check();
    EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
    EXPECT_EQ(result.not_checkable, 0);
    EXPECT_EQ(result.coverage.candidate_only, 0);
    EXPECT_EQ(result.routing.tokens, RoutedRun::kTokens);
    EXPECT_EQ(result.routing.otherwise, 0);
    const TensorJudgement& rows =
        Find(result, "moe.experts.1", Role::kOutput, "0");
    EXPECT_EQ(rows.verdict, TensorVerdict::kWithin);
    ASSERT_TRUE(rows.legs[0].routed);
    EXPECT_EQ(rows.legs[0].routed->only_candidate, 0);
    EXPECT_TRUE(rows.judged_isolated());
    EXPECT_THAT(RenderJson(result), HasSubstr("\"only_reference\":0"));
    EXPECT_THAT(RenderTerminal(result, {}), Not(HasSubstr("routed otherwise")));
  }
}

TEST_F(RoutedRunsTest, ARowInTheWrongSlotIsFoundAtItsExpertAndRank) {
  candidate_.change = [](RoutedPiece* piece) {
    if (piece->rank == 2 && piece->spec.fqn == "moe.experts.2" &&
        piece->spec.role == Role::kInput && piece->tokens.size() > 1) {
      std::swap_ranges(piece->values.begin(),
                       piece->values.begin() + RoutedRun::kHidden,
                       piece->values.begin() + RoutedRun::kHidden);
    }
    return true;
  };
  candidate_.tp = 1;
  candidate_.cp = 2;
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kDiverged);
  ASSERT_FALSE(result.culprits.empty());
  EXPECT_EQ(result.culprits[0].tensor.fqn, "moe.experts.2");
  EXPECT_THAT(Find(result, "moe.experts.2", Role::kInput, "x").ranks,
              ElementsAre(2));
}

TEST_F(RoutedRunsTest, AMissingRowIsCounted) {
  candidate_.change = [](RoutedPiece* piece) {
    if (piece->rank == 1 && piece->spec.fqn == "moe.experts.1" &&
        piece->spec.role == Role::kInput && piece->micro_batch == 2) {
      --piece->spec.local_shape[0];
    }
    return true;
  };
  for (const bool with_reference : {true, false}) {
    with_reference_ = with_reference;
    const CheckResult result = Check();
    EXPECT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
    const TensorJudgement& t = Find(result, "moe.experts.1", Role::kInput, "x");
    EXPECT_EQ(t.reason.kind, ReasonKind::kRoutedRows);
    EXPECT_THAT(t.ranks, ElementsAre(1));
    EXPECT_THAT(ReasonWords(t.reason),
                HasSubstr("of expert 1, to which moe.router sent it"));
    ASSERT_FALSE(result.culprits.empty());
    EXPECT_EQ(result.culprits[0].tensor.fqn, "moe.experts.1");
    ASSERT_FALSE(result.culprits[0].classes.empty());
    EXPECT_EQ(result.culprits[0].classes[0].bug_class, BugClass::kPermutation);
  }
}

TEST_F(RoutedRunsTest, AMissingMapLeavesTheVerdictOpenAndIsNamed) {
  for (RoutedRun* side : {&candidate_, &reference_}) {
    const auto before = side->change;
    const int rank = side->dp - 1;
    side->change = [rank](RoutedPiece* piece) {
      return piece->rank != rank || piece->spec.dtype != DType::kBool;
    };
    const CheckResult result = Check();
    side->change = before;
    EXPECT_EQ(result.verdict, Verdict::kInconclusive);
    const TensorJudgement& t =
        Find(result, "moe.experts.1", Role::kOutput, "0");
    EXPECT_EQ(t.verdict, TensorVerdict::kNotCheckable);
    EXPECT_EQ(t.reason.kind, ReasonKind::kNoRouting);
    EXPECT_THAT(ReasonWords(t.reason),
                HasSubstr("rank " + std::to_string(rank) +
                          ": no routing map of moe.router (output 1)"));
    EXPECT_EQ(
        ReasonWords(t.reason).find("in the reference") != std::string::npos,
        side == &reference_);
  }
}

TEST_F(RoutedRunsTest, ATieThatFellOtherwiseIsNoFinding) {
  Flip();
  SetScores(0x1p-26F);
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_EQ(result.routing.tokens, RoutedRun::kTokens);
  EXPECT_EQ(result.routing.otherwise, 1);
  EXPECT_EQ(result.routing.tied, 1);
  EXPECT_THAT(
      RenderTerminal(result, {}),
      HasSubstr("1 of 32 tokens routed otherwise, all within round-off"));
  EXPECT_THAT(RenderJson(result), HasSubstr("\"routing\": {"));
  const TensorJudgement& map = Find(result, "moe.router", Role::kOutput, "1");
  EXPECT_EQ(map.verdict, TensorVerdict::kWithin);
  // What is out of bound for that reason alone is judged alone.
  const TensorJudgement& after = Find(result, "moe", Role::kOutput, "0");
  EXPECT_EQ(after.verdict, TensorVerdict::kNotCheckable);
  EXPECT_EQ(after.reason.kind, ReasonKind::kRoutedUpstream);
  EXPECT_TRUE(after.judged_isolated());
  // The tokens of both sides are as they were.
  const TensorJudgement& lost = Find(
      result, "moe.experts." + std::to_string(Dropped()), Role::kOutput, "0");
  EXPECT_EQ(lost.verdict, TensorVerdict::kWithin);
  EXPECT_EQ(lost.legs[0].routed->only_reference, 1);
}

TEST_F(RoutedRunsTest, AfterATieOnlyIsolatedLegsSettleIt) {
  Flip();
  SetScores(0x1p-26F);
  candidate_.legs = {"real"};
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_THAT(result.reason, HasSubstr("routed otherwise upstream"));
}

TEST_F(RoutedRunsTest, AChoiceFarFromATieIsWrongAtTheRouter) {
  Flip();
  SetScores(0.25F);
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kDiverged);
  ASSERT_FALSE(result.culprits.empty());
  EXPECT_EQ(result.culprits[0].fqn, "moe.router");
  EXPECT_EQ(result.culprits[0].direction, Direction::kForward);
  EXPECT_EQ(result.culprits[0].stage, Stage::kCompute);
  const TensorJudgement& map = Find(result, "moe.router", Role::kOutput, "1");
  EXPECT_EQ(map.reason.kind, ReasonKind::kWrongRouting);
  EXPECT_EQ(ReasonWords(map.reason),
            "1 of 32 tokens were routed otherwise, 1 of them by more than "
            "round-off explains");
  EXPECT_EQ(result.routing.tied, 0);
  EXPECT_THAT(RenderTerminal(result, {}),
              HasSubstr("1 of them beyond round-off"));
}

TEST_F(RoutedRunsTest, AFaultBehindATieIsShownByTheIsolatedLeg) {
  candidate_.change = [](RoutedPiece* piece) {
    if (piece->spec.fqn == "moe.experts.2" &&
        piece->spec.role == Role::kOutput) {
      for (float& value : piece->values) value *= 1.25F;
    }
    return true;
  };
  Flip();
  SetScores(0x1p-26F);
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kDiverged);
  ASSERT_FALSE(result.culprits.empty());
  EXPECT_EQ(result.culprits[0].fqn, "moe.experts.2");
  EXPECT_EQ(Find(result, "moe.experts.2", Role::kOutput, "0").reason.kind,
            ReasonKind::kRoutedUpstream);
}

TEST_F(RoutedRunsTest, WithoutScoresOnlyNoiseThatFlipsExcusesAFlip) {
  Flip();
  const auto without = [](RoutedRun* run) {
    run->change = [more = run->change](RoutedPiece* piece) {
      return piece->spec.arg != "scores" && (!more || more(piece));
    };
  };
  without(&reference_);
  without(&candidate_);
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
  EXPECT_EQ(Check().routing.tokens, 0);
  // Noise legs that flip as many.
  reference_.routing = [](const Leg& leg, int64_t token) {
    std::set<int> experts = RoutedRun::Route(token);
    if (token == kToken && leg.name().starts_with("noise")) {
      experts.erase(Dropped());
      experts.insert(Added());
    }
    return experts;
  };
  const CheckResult result = Check();
  EXPECT_EQ(Find(result, "moe.router", Role::kOutput, "1").verdict,
            TensorVerdict::kWithin);
}

TEST_F(RoutedRunsTest, ScoresWithoutABoundExcuseNothing) {
  Flip();
  SetScores(0x1p-26F);
  const auto reason = [&] {
    return Find(Check(), "moe.router", Role::kOutput, "1").reason.kind;
  };
  reference_.noise_of_legs = 0.9F;
  EXPECT_EQ(reason(), ReasonKind::kElementsDiffer);
  reference_.legs = {"real"};
  EXPECT_EQ(reason(), ReasonKind::kElementsDiffer);
}

TEST_F(RoutedRunsTest, WhatIsMissingBehindATieIsMissing) {
  candidate_.change = [](RoutedPiece* piece) {
    return piece->spec.fqn != "moe" || piece->micro_batch != 3;
  };
  Flip();
  SetScores(0x1p-26F);
  const CheckResult result = Check();
  const TensorJudgement& t = Find(result, "moe", Role::kOutput, "0");
  EXPECT_EQ(t.verdict, TensorVerdict::kUnmatched);
  EXPECT_EQ(t.reason.kind, ReasonKind::kElementsMissing);
}

// All tokens of an expert may go elsewhere: nothing is then seen of it.
TEST_F(RoutedRunsTest, AnExpertWithoutTokensIsNoEvidence) {
  const auto never = [](const Leg&, int64_t token) {
    std::set<int> experts = RoutedRun::Route(token);
    if (experts.erase(0) > 0) experts.insert(1 + static_cast<int>(token % 3));
    return experts;
  };
  reference_.routing = candidate_.routing = never;
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_TRUE(Find(result, "moe.experts.0", Role::kOutput, "0").all_zero);
  EXPECT_FALSE(Find(result, "moe.experts.1", Role::kOutput, "0").all_zero);
}

}  // namespace
}  // namespace ttrace::routed_runs_test
