// Runs of which one has a norm within the linear behind it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "src/check/testing/check_fixture.h"

namespace ttrace::fused_runs_test {
namespace {

using testing::Contains;
using testing::Key;

constexpr const char* kFused =
    R"({"fqn":"block.norm","within":"block.linear","class":"NormLinear",)"
    R"("names":{"block.norm":"block.linear",)"
    R"("block.norm.weight":"block.linear.norm_weight"},)"
    R"("absent":{"block.norm":["output","no role"],"block.linear":["input"]}})";

class FusedRunTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    for (SyntheticRun* run : {&reference_, &candidate_}) {
      run->extra = {Made("block.norm", Role::kInput),
                    Made("block.norm", Role::kOutput),
                    Made("block.linear", Role::kInput),
                    Made("block.linear", Role::kOutput),
                    Made("block", Role::kOutput),
                    Made("block.norm.weight", Role::kParam)};
    }
    candidate_.omit = [](const SyntheticTensor& t, int, const Leg&, int) {
      return (t.fqn == "block.norm" && t.role == Role::kOutput) ||
             (t.fqn == "block.linear" && t.role == Role::kInput);
    };
  }

  static SyntheticTensor Made(const std::string& fqn, Role role) {
    const bool of_rows = role != Role::kParam;
    return {fqn,
            role,
            of_rows ? "0" : "",
            Pass::kForward,
            {of_rows ? SyntheticRun::kRows : 16, 16},
            {},
            of_rows ? 0 : -1,
            {}};
  }
};

TEST_F(FusedRunTest, WhatPassesWithinTheModuleIsNotMissing) {
  EXPECT_EQ(CheckAgain().verdict, Verdict::kInconclusive);
  candidate_.notes = {{"fused", kFused}};
  const CheckResult result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_THAT(result.coverage.excused,
              Contains(Key("not materialised: part of NormLinear")));
}

TEST_F(FusedRunTest, TheReferenceMayBeTheOneThatHasIt) {
  reference_.omit = candidate_.omit;
  candidate_.omit = {};
  reference_.notes = {{"fused", kFused}};
  EXPECT_EQ(CheckAgain().verdict, Verdict::kWithin);
}

TEST_F(FusedRunTest, OtherTensorsOfThoseModulesAre) {
  candidate_.notes = {{"fused", kFused}};
  for (const auto& [fqn, role] : {std::pair{"block.norm", Role::kInput},
                                  {"block.linear", Role::kOutput},
                                  {"block.norm.weight", Role::kParam}}) {
    const std::string name = fqn;
    const Role lost = role;
    const auto within = candidate_.omit;
    candidate_.omit = [=](const SyntheticTensor& t, int rank, const Leg& leg,
                          int batch) {
      return within(t, rank, leg, batch) || (t.fqn == name && t.role == lost);
    };
    EXPECT_EQ(CheckAgain().verdict, Verdict::kInconclusive) << fqn;
    candidate_.omit = within;
  }
}

TEST_F(FusedRunTest, APlaceHasTheNameThatTheCandidateHasForIt) {
  candidate_.notes = {{"fused", kFused}};
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.fqn == "block.norm.weight") *value *= 2;
  };
  const CheckResult result = CheckAgain();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.at(0).fqn, "block.norm.weight");
  EXPECT_EQ(result.culprits.at(0).name_in_candidate,
            "block.linear.norm_weight");
  // What another module is called needs no other name.
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.fqn == "block.linear") *value *= 2;
  };
  EXPECT_EQ(CheckAgain().culprits.at(0).name_in_candidate, "");
}

TEST_F(FusedRunTest, NotesThatSayNothingUsefulAreLeftOut) {
  candidate_.omit = {};
  candidate_.notes = {{"fused", "{}"},
                      {"fused", R"({"fqn":"a","within":"b","names":[1],)"
                                R"("absent":{"c":1,"d":[2]}})"},
                      {"fused", R"({"fqn":"fc","within":"fc"})"}};
  EXPECT_EQ(CheckAgain().verdict, Verdict::kWithin);
}

}  // namespace
}  // namespace ttrace::fused_runs_test
