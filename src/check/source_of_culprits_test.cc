// The line of the source that a culprit names: what capture noted of the module
// that it is in, or of the call that makes it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/check/testing/check_fixture.h"
#include "src/report/render.h"

namespace ttrace {
namespace {

using testing::HasSubstr;

class SourceTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    candidate_.notes = {
        {"source_of_class",
         R"({"class":"Mlp","file":"/home/a b/model.py","line":88,)"
         R"("forward_file":"/home/a b/model.py","forward_line":97,)"
         R"("modules":["fc","head"]})"},
        {"source_of_class", R"({"class":"Gpt","file":"gpt.py","line":3,)"
                            R"("modules":[""]})"},
        {"source_of_class", R"({"class":"Cut","file":"x.py","line":0})"},
        {"source_of_call", R"({"what":"step","file":"train.py","line":31})"},
        {"source_of_call",
         R"({"what":"backward","file":"train.py","line":30})"}};
  }

  Culprit FirstWrong(Role role) {
    role_ = role;
    candidate_.fault = [this](const SyntheticTensor& t, int, const Leg&,
                              int64_t, float* value) {
      if (t.role == role_) *value *= 2;
    };
    const CheckResult result = CheckAgain();
    EXPECT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
    if (result.culprits.empty()) return {};
    EXPECT_THAT(RenderTerminal(result),
                HasSubstr(result.culprits[0].source.words.substr(0, 20)));
    return result.culprits[0];
  }

  Role role_ = Role::kOutput;
};

TEST_F(SourceTest, OfAModuleItIsTheClass) {
  const Culprit culprit = FirstWrong(Role::kOutput);
  EXPECT_EQ(culprit.source.file, "/home/a b/model.py");
  EXPECT_EQ(culprit.source.line, 88);
  EXPECT_EQ(culprit.source.words,
            "/home/a b/model.py:88, class Mlp, forward at line 97");
}

TEST_F(SourceTest, OfAParameterItIsTheClassOfItsModule) {
  const Culprit culprit = FirstWrong(Role::kGradReduced);
  EXPECT_NE(culprit.fqn, "fc");
  EXPECT_THAT(culprit.source.words,
              testing::AnyOf(HasSubstr("class Mlp"), HasSubstr("class Gpt")));
}

TEST_F(SourceTest, AClassThatWasMadeOfAnotherHasTheLineOfThat) {
  candidate_.notes[0].second =
      R"({"class":"Made","base":"Mlp","file":"m.py","line":8,)"
      R"("forward_file":"n.py","forward_line":9,"modules":["fc","head"]})";
  EXPECT_EQ(FirstWrong(Role::kOutput).source.words,
            "m.py:8, class Mlp (base of Made), forward at n.py:9");
}

TEST_F(SourceTest, OfAClassThatIsWrittenNowhereItIsTheForward) {
  candidate_.notes[0].second =
      R"({"class":"Made","forward_file":"n.py","forward_line":9,)"
      R"("modules":["fc","head"]})";
  const Culprit culprit = FirstWrong(Role::kOutput);
  EXPECT_EQ(culprit.source.line, 9);
  EXPECT_EQ(culprit.source.words, "n.py:9, forward of class Made");
}

TEST_F(SourceTest, AClassWithoutALineHasNotThatOfTheModuleAround) {
  candidate_.notes[0].second = R"({"class":"Made","modules":["fc","head"]})";
  EXPECT_EQ(FirstWrong(Role::kOutput).source.words, "");
}

TEST_F(SourceTest, WhatNobodyNotedIsNotNamed) {
  candidate_.notes.clear();
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.role == Role::kOutput) *value *= 2;
  };
  const CheckResult result = CheckAgain();
  ASSERT_FALSE(result.culprits.empty());
  EXPECT_EQ(result.culprits[0].source.file, "");
  EXPECT_THAT(RenderJson(result), HasSubstr(R"("source":null)"));
}

}  // namespace
}  // namespace ttrace
